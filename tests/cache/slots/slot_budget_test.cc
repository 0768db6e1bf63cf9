// A budget of bytes, slots or a share, shared out between pools: never more than was given, and
// what cannot be followed is refused or noted.
#include "cache/slots/slot_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

SlotDemand TwoPools() {  // layers 0, 1 and 3; layer 2
  return {.blob_bytes = {1000, 1000, 3000, 1000}, .expert_count = 16, .spare_count = 4};
}

uint64_t TotalBytes(const SlotPlan& plan) {
  uint64_t bytes = 0;
  for (const SlotPoolShape& p : plan.pools) bytes += p.total_bytes();
  return bytes;
}

TEST(SlotBudget, LayersOfEqualBytesShareAPoolOfAlignedSlots) {
  const auto plan = ShareSlots({.share = 0.5}, TwoPools());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->pools.size(), 2u);
  EXPECT_EQ(plan->pools[0].layers, (std::vector{LayerId(0), LayerId(1), LayerId(3)}));
  EXPECT_EQ(plan->pools[0].slot_bytes, 1024u);
  EXPECT_EQ(plan->pools[0].slot_count, 24u);
  EXPECT_EQ(plan->pools[0].spare_count, 4u);
  EXPECT_EQ(plan->pools[1].layers, std::vector{LayerId(2)});
  EXPECT_EQ(plan->pools[1].slot_bytes, 3072u);
  EXPECT_EQ(plan->pools[1].slot_count, 8u);
  EXPECT_TRUE(plan->notes.empty());
}

TEST(SlotBudget, FortyPercentOfTheModelAre9830Slots) {
  const SlotDemand demand = {
      .blob_bytes = std::vector<uint64_t>(48, 2'764'816), .expert_count = 512, .spare_count = 8};
  const auto plan = ShareSlots({.share = 0.4}, demand);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->pools[0].slot_count, 9830u);
}

TEST(SlotBudget, NoBudgetIsNoSlotsAndNoSpares) {
  const auto plan = ShareSlots({}, TwoPools());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const SlotPoolShape& p : plan->pools) EXPECT_EQ(p.total_count(), 0u);
  EXPECT_TRUE(plan->notes.empty());
}

TEST(SlotBudget, EveryCountIsGivenOutToTheLastSlot) {
  for (uint64_t count = 1; count <= 70; ++count) {
    const auto plan = ShareSlots({.slot_count = count}, TwoPools());
    ASSERT_TRUE(plan.ok()) << plan.status();
    const SlotPoolShape& a = plan->pools[0];
    const SlotPoolShape& b = plan->pools[1];
    EXPECT_EQ(a.slot_count + b.slot_count, std::min<uint64_t>(count, 64)) << count;
    EXPECT_LE(a.total_count(), 48u);
    EXPECT_LE(b.total_count(), 16u);
    EXPECT_LE(b.slot_count, a.slot_count / 3 + 1);
    EXPECT_EQ(plan->notes.empty(), count >= 3 && count <= 64) << count;
  }
}

TEST(SlotBudget, BytesAreNeverExceededAndNeverLieIdle) {
  const SlotDemand demand = TwoPools();
  const uint64_t all_bytes = 48 * 1024 + 16 * 3072;
  uint64_t most_slots = 0;
  for (uint64_t bytes = 5 * 1024; bytes < all_bytes + 5000; bytes += 331) {
    const auto plan = ShareSlots({.bytes = bytes}, demand);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(TotalBytes(*plan), bytes);
    uint64_t slots = 0;
    for (const SlotPoolShape& p : plan->pools) {
      const auto experts = static_cast<uint32_t>(p.layers.size() * demand.expert_count);
      slots += p.slot_count;
      EXPECT_EQ(p.spare_count, SpareCount(p.slot_count, experts, 4));
      if (p.slot_count == experts) continue;
      const uint64_t more =
          (p.slot_count + 1 + SpareCount(p.slot_count + 1, experts, 4)) * p.slot_bytes;
      EXPECT_GT(TotalBytes(*plan) - p.total_bytes() + more, bytes) << "a slot more would fit";
    }
    if (plan->pools[1].slot_count > 0) {
      EXPECT_NEAR(plan->pools[0].slot_count / 48.0, plan->pools[1].slot_count / 16.0, 0.3);
    }
    most_slots = std::max(most_slots, slots);
  }
  EXPECT_EQ(most_slots, 64u);
}

TEST(SlotBudget, BytesForEveryExpertNeedNoSpares) {
  const uint64_t all_bytes = 48 * 1024 + 16 * 3072;
  const auto plan = ShareSlots({.bytes = all_bytes}, TwoPools());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->pools[0].slot_count, 48u);
  EXPECT_EQ(plan->pools[0].spare_count, 0u);
  EXPECT_EQ(plan->pools[1].slot_count, 16u);
  EXPECT_EQ(TotalBytes(*plan), all_bytes);
}

TEST(SlotBudget, TooFewBytesAreRefusedWithTheLeastThatWouldDo) {
  const auto plan = ShareSlots({.bytes = 5 * 1024 - 1}, TwoPools());
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("5120"));
  const auto least = ShareSlots({.bytes = 5 * 1024}, TwoPools());
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(least->pools[0].slot_count, 1u);
  EXPECT_EQ(least->pools[1].slot_count, 0u);
  ASSERT_EQ(least->notes.size(), 1u);
  EXPECT_THAT(least->notes[0], HasSubstr("3000 bytes"));
}

TEST(SlotBudget, AShareOfLessThanOneExpertIsOneSlotAndSaysSo) {
  const auto plan =
      ShareSlots({.share = 0.001}, {.blob_bytes = {100}, .expert_count = 8, .spare_count = 4});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->pools[0].slot_count, 1u);
  EXPECT_EQ(plan->notes.size(), 1u);
}

TEST(SlotBudget, WhatIsNoBudgetIsRefused) {
  const auto code = [](const SlotBudget& budget, const SlotDemand& demand) {
    return ShareSlots(budget, demand).status().code();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.bytes = 1, .slot_count = 1}, TwoPools()), kInvalid);
  EXPECT_EQ(code({.slot_count = 1, .share = 0.5}, TwoPools()), kInvalid);
  EXPECT_EQ(code({.share = 1.01}, TwoPools()), kInvalid);
  EXPECT_EQ(code({.share = -0.1}, TwoPools()), kInvalid);
  EXPECT_EQ(code({.share = NAN}, TwoPools()), kInvalid);
  EXPECT_EQ(code({.share = 1}, {}), kInvalid);
  EXPECT_EQ(code({.share = 1}, {.blob_bytes = {0}, .expert_count = 4}), kInvalid);
  EXPECT_EQ(code({.share = 1}, {.blob_bytes = {UINT64_MAX}, .expert_count = 4}), kInvalid);
  EXPECT_EQ(code({.share = 1}, {.blob_bytes = {8, 8, 8}, .expert_count = 1u << 31}), kInvalid);
}

}  // namespace
}  // namespace hearth
