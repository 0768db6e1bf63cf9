// When a pool pins its experts and when it stops.
#include "cache/slots/pin_guard.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

void Window(PinGuard& guard, uint32_t layers, uint32_t distinct, uint32_t slots) {
  for (uint32_t l = 0; l < layers; ++l) guard.Observe(distinct);
  guard.EndWindow(slots);
}

TEST(PinGuard, PinsBelowOneAndAHalfTimesWhatAWindowUses) {
  PinGuard guard(4, 1000);
  EXPECT_FALSE(guard.pinned());
  Window(guard, 4, 10, 60);
  EXPECT_EQ(guard.window_expert_count(), 40u);
  EXPECT_EQ(guard.enough_slot_count(), 60u);
  EXPECT_FALSE(guard.pinned());
  Window(guard, 4, 10, 59);
  EXPECT_TRUE(guard.pinned());
  Window(guard, 4, 10, 60);
  EXPECT_FALSE(guard.pinned());
}

TEST(PinGuard, UnpinsWhenWindowsUseFewerExperts) {
  PinGuard guard(4, 1000);
  Window(guard, 4, 40, 100);
  EXPECT_TRUE(guard.pinned());
  uint32_t windows = 0;
  while (guard.pinned() && windows < 200) {
    Window(guard, 4, 10, 100);
    ++windows;
  }
  EXPECT_FALSE(guard.pinned());
  EXPECT_GT(windows, 5u);  // an average: not at the first small window
}

TEST(PinGuard, APoolOfEveryExpertOrOfNoneNeverPins) {
  PinGuard guard(4, 64);
  Window(guard, 4, 16, 64);
  EXPECT_FALSE(guard.pinned());
  EXPECT_EQ(guard.enough_slot_count(), 64u);
  Window(guard, 4, 16, 63);
  EXPECT_TRUE(guard.pinned());
  Window(guard, 4, 16, 0);
  EXPECT_FALSE(guard.pinned());
}

TEST(PinGuard, PassesOverAFewLayersAndEmptyOnesDoNotCount) {
  PinGuard guard(4, 1000);
  Window(guard, 4, 20, 100);
  ASSERT_TRUE(guard.pinned());
  for (int i = 0; i < 100; ++i) {
    Window(guard, 1, 5, 100);
    Window(guard, 0, 0, 100);
  }
  EXPECT_TRUE(guard.pinned());
  EXPECT_EQ(guard.window_expert_count(), 80u);
}

}  // namespace
}  // namespace hearth
