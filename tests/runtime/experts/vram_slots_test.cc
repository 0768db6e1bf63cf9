// How many slots a card gets: what the budget and the free memory allow, and less where the memory
// cannot be had.
#include "runtime/experts/vram_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/units.h"
#include "runtime/experts/host_slots.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBlobBytes = 4096;

SlotCacheOptions Options(const SlotBudget& budget) {
  return {
      .blob_bytes = std::vector<uint64_t>(4, kBlobBytes), .expert_count = 256, .budget = budget};
}

// A card that gives out at most so much.
struct FakeCard {
  uint64_t has_bytes = UINT64_MAX;
  absl::Status refusal = absl::ResourceExhaustedError("card: full");
  std::vector<uint64_t> asked_bytes;

  MakeSlotDevice Fn() {
    return
        [this](
            std::span<const SlotPoolShape> pools) -> absl::StatusOr<std::unique_ptr<SlotDevice>> {
          uint64_t bytes = 0;
          for (const SlotPoolShape& pool : pools) bytes += pool.total_bytes();
          asked_bytes.push_back(bytes);
          if (bytes > has_bytes) return refusal;
          return HostSlots::Create(pools, {});
        };
  }
};

TEST(VramSlots, WithoutABudgetTakesAllTheRoom) {
  FakeCard card;
  auto slots =
      OpenVramSlots(Options({}), {.free_bytes = 1_MiB, .reserve_bytes = 256_KiB}, card.Fn());
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_LE(slots->cache->bytes(), 768_KiB);
  EXPECT_GT(slots->cache->bytes(), 768_KiB - 2 * kBlobBytes);
  EXPECT_TRUE(slots->notes.empty());
  EXPECT_EQ(card.asked_bytes.size(), 1u);
}

TEST(VramSlots, BudgetsBelowTheRoomAreFollowed) {
  for (const SlotBudget& budget :
       {SlotBudget{.bytes = 200_KiB}, SlotBudget{.slot_count = 40}, SlotBudget{.share = 0.1}}) {
    FakeCard card;
    auto slots = OpenVramSlots(Options(budget), {.free_bytes = 1_GiB}, card.Fn());
    ASSERT_TRUE(slots.ok()) << slots.status();
    auto planned = SlotCache::Create(Options(budget));
    ASSERT_TRUE(planned.ok());
    EXPECT_EQ(slots->cache->bytes(), (*planned)->bytes());
    EXPECT_TRUE(slots->notes.empty());
  }
}

TEST(VramSlots, BudgetsAboveTheRoomAreCutWithANote) {
  for (const SlotBudget& budget :
       {SlotBudget{.bytes = 3_MiB}, SlotBudget{.slot_count = 900}, SlotBudget{.share = 1}}) {
    FakeCard card;
    auto slots =
        OpenVramSlots(Options(budget), {.free_bytes = 1_MiB, .reserve_bytes = 0}, card.Fn());
    ASSERT_TRUE(slots.ok()) << slots.status();
    EXPECT_LE(slots->cache->bytes(), 1_MiB);
    ASSERT_EQ(slots->notes.size(), 1u);
    EXPECT_THAT(slots->notes[0], HasSubstr("--vram-reserve"));
  }
}

TEST(VramSlots, WhatIsRefusedIsTriedAgainWithATwentiethLess) {
  for (const absl::Status& refusal :
       {absl::ResourceExhaustedError("card: full"), absl::DataLossError("card: page 7")}) {
    FakeCard card{.has_bytes = 800_KiB, .refusal = refusal, .asked_bytes = {}};
    auto slots = OpenVramSlots(Options({.bytes = 1_MiB}), {.free_bytes = 1_GiB}, card.Fn());
    ASSERT_TRUE(slots.ok()) << slots.status();
    EXPECT_LE(slots->cache->bytes(), 800_KiB);
    EXPECT_GT(slots->cache->bytes(), 740_KiB);
    ASSERT_GT(card.asked_bytes.size(), 2u);
    for (size_t i = 1; i < card.asked_bytes.size(); ++i) {
      EXPECT_LT(card.asked_bytes[i], card.asked_bytes[i - 1]);
      EXPECT_GT(card.asked_bytes[i], card.asked_bytes[i - 1] * 9 / 10);
    }
    ASSERT_EQ(slots->notes.size(), 1u);
    EXPECT_THAT(slots->notes[0], HasSubstr(std::string(refusal.message())));
    uint64_t pool_bytes = 0;
    for (const SlotPoolShape& pool : slots->cache->pools()) pool_bytes += pool.total_bytes();
    EXPECT_EQ(card.asked_bytes.back(), pool_bytes);  // the device has the cache's slots
  }
}

TEST(VramSlots, LessThanHalfIsAnErrorWithARemedy) {
  FakeCard card{.has_bytes = 300_KiB, .asked_bytes = {}};
  const auto slots = OpenVramSlots(Options({.bytes = 1_MiB}), {.free_bytes = 1_GiB}, card.Fn());
  EXPECT_EQ(slots.status().code(), absl::StatusCode::kResourceExhausted) << slots.status();
  EXPECT_THAT(std::string(slots.status().message()), HasSubstr("--vram-budget"));
  EXPECT_GE(card.asked_bytes.back(), 1_MiB / 2 - 2 * kBlobBytes);
}

TEST(VramSlots, OtherErrorsAreNotTriedAgain) {
  FakeCard card{.has_bytes = 0, .refusal = absl::UnavailableError("no card"), .asked_bytes = {}};
  const auto slots = OpenVramSlots(Options({.bytes = 1_MiB}), {.free_bytes = 1_GiB}, card.Fn());
  EXPECT_EQ(slots.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(card.asked_bytes.size(), 1u);
}

TEST(VramSlots, NoRoomIsAnErrorThatSaysWhoTookIt) {
  FakeCard card;
  for (const SlotBudget& budget : {SlotBudget{}, SlotBudget{.slot_count = 10}}) {
    const auto slots = OpenVramSlots(Options(budget), {.free_bytes = 100_MiB}, card.Fn());
    EXPECT_EQ(slots.status().code(), absl::StatusCode::kResourceExhausted) << slots.status();
    EXPECT_THAT(std::string(slots.status().message()), HasSubstr("--vram-reserve"));
  }
  EXPECT_TRUE(card.asked_bytes.empty());
}

}  // namespace
}  // namespace hearth
