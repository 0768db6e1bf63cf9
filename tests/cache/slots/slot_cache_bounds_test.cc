// A pool that is too small pins its experts and says so; a lowered budget stays lowered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/slots/pin_guard.h"
#include "cache/slots/slot_cache.h"
#include "runtime/base/prng.h"
#include "tests/cache/slots/slot_driver.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Routes = std::vector<std::vector<uint32_t>>;

// Experts that go round and round: what least recently used loses most on.
Routes Rotating(uint32_t layers, uint32_t count, uint32_t expert_count, uint32_t step) {
  Routes routes(layers);
  for (auto& layer : routes) {
    for (uint32_t i = 0; i < count; ++i) layer.push_back((step * count + i) % expert_count);
  }
  return routes;
}

TEST(SlotCachePinning, APoolBelowItsWindowsHardlySwapsAndSaysSo) {
  SlotCacheOptions options = SmallCache(4, 64, 40);
  options.policy = "lru";
  const auto cache = MakeCache(options);
  Fill(*cache);
  RunWindow(*cache, Rotating(4, 8, 64, 0));  // 32 experts: 48 slots would be enough
  ASSERT_TRUE(cache->stats().pinned);
  uint32_t swaps = 0;  // unpinned, this traffic swaps eight experts in every window
  for (uint32_t w = 1; w < 200; ++w) {
    swaps += RunWindow(*cache, Rotating(4, 8, 64, w)).swap_count;
  }
  EXPECT_LT(swaps, 100u);
  ASSERT_EQ(cache->notes().size(), 1u);
  EXPECT_THAT(cache->notes()[0], HasSubstr("pool 0"));
  EXPECT_THAT(cache->notes()[0], HasSubstr("40 slots"));
  EXPECT_THAT(cache->notes()[0], HasSubstr("uses 32 experts"));
  EXPECT_THAT(cache->notes()[0], HasSubstr("48 slots (56.0 KiB) would be enough"));
}

TEST(SlotCachePinning, EnoughSlotsAreNotPinned) {
  SlotCacheOptions options = SmallCache(4, 64, 48);
  options.policy = "lru";
  const auto cache = MakeCache(options);
  Fill(*cache);
  uint32_t swaps = 0;
  for (uint32_t w = 0; w < 20; ++w) {
    swaps += RunWindow(*cache, Rotating(4, 8, 64, w)).swap_count;
    ASSERT_FALSE(cache->stats().pinned);
  }
  EXPECT_GT(swaps, 20u);
  EXPECT_TRUE(cache->notes().empty());
}

TEST(SlotCachePinning, FreeSlotsAreFilledThoughItPins) {
  const auto cache = MakeCache(SmallCache(4, 64, 40));
  for (uint32_t w = 0; w < 30; ++w) RunWindow(*cache, Rotating(4, 8, 64, w));
  EXPECT_TRUE(cache->stats().pinned);
  EXPECT_EQ(cache->stats().resident_count, 40u);
}

TEST(SlotCachePinning, ClearlyHotterExpertsComeIn) {
  SlotCacheOptions options = SmallCache(1, 64, 10);
  options.swaps_per_layer_max = 8;
  const auto cache = MakeCache(options);
  cache->Seed(LayerId(0), std::vector<float>(64, 0.01f));
  Fill(*cache);  // experts 0 to 9
  const Routes hot = {{20, 21, 22, 23, 24, 25, 26, 27}};
  uint32_t evictions = 0;
  for (uint32_t w = 0; w < 100; ++w) evictions += RunWindow(*cache, hot).eviction_count;
  ASSERT_TRUE(cache->stats().pinned);
  EXPECT_EQ(evictions, 8u);
  for (const uint32_t e : hot[0]) EXPECT_TRUE(cache->resident(Key(0, e))) << e;
}

TEST(SlotCachePinning, NoSwapOfExpertsThatAreNotClearlyHotter) {
  std::map<ExpertKey, float> heat;
  SlotCacheOptions options = SmallCache(1, 64, 10);
  options.make_policy = [&](const PoolShape&) -> absl::StatusOr<std::unique_ptr<ResidencyPolicy>> {
    return std::make_unique<GreedyPolicy>(&heat);
  };
  const auto cache = MakeCache(options);
  Fill(*cache);
  for (uint32_t e = 0; e < 64; ++e) heat[Key(0, e)] = e < 10 ? 1 : 1.99f;
  const Routes routes = {{20, 21, 22, 23, 24, 25, 26, 27}};
  RunWindow(*cache, Routes{{0, 1, 2, 3, 4, 5, 6, 7}});
  ASSERT_TRUE(cache->stats().pinned);
  for (int w = 0; w < 600; ++w) ASSERT_EQ(RunWindow(*cache, routes).swap_count, 0u);
  heat[Key(0, 25)] = 2.01f;
  uint32_t swaps = 0;
  for (int w = 0; w < 600; ++w) swaps += RunWindow(*cache, routes).swap_count;
  EXPECT_EQ(swaps, 1u);
  EXPECT_TRUE(cache->resident(Key(0, 25)));
}

TEST(SlotCachePinning, EndsWhenWindowsBecomeSmaller) {
  SlotCacheOptions options = SmallCache(4, 64, 40);
  options.policy = "lru";
  const auto cache = MakeCache(options);
  Fill(*cache);
  for (uint32_t w = 0; w < 3; ++w) RunWindow(*cache, Rotating(4, 10, 64, w));
  ASSERT_TRUE(cache->stats().pinned);
  uint32_t windows = 0;
  while (cache->stats().pinned && windows < 100) {
    RunWindow(*cache, Rotating(4, 2, 64, windows++));
  }
  EXPECT_FALSE(cache->stats().pinned);
  EXPECT_TRUE(cache->notes().empty());
  EXPECT_GT(RunWindow(*cache, Rotating(4, 2, 64, 60)).swap_count, 0u);
}

TEST(SlotCacheLower, EvictsTheColdestAndStaysLowered) {
  const auto cache = MakeCache(SmallCache(1, 64, 32));
  std::vector<float> heat(64);
  for (uint32_t e = 0; e < 64; ++e) heat[e] = static_cast<float>(e);
  cache->Seed(LayerId(0), heat);
  ASSERT_EQ(Fill(*cache), 32u);  // experts 32 to 63
  const uint64_t bytes_before = cache->bytes();
  cache->Lower(0, 10);
  for (uint32_t e = 0; e < 64; ++e) EXPECT_EQ(cache->resident(Key(0, e)), e >= 54) << e;
  EXPECT_EQ(cache->pools()[0].slot_count, 10u);
  EXPECT_EQ(cache->pools()[0].spare_count, 8u);
  EXPECT_EQ(bytes_before - cache->bytes(), 22u * 1024);
  EXPECT_EQ(cache->counts(0).retired, 22u);
  EXPECT_EQ(cache->counts(0).free, 8u);
  Prng prng(1);
  for (uint32_t w = 0; w < 200; ++w) {
    RunWindow(*cache, Rotating(1, 6, 64, static_cast<uint32_t>(prng.Below(64))));
    ASSERT_LE(cache->stats().resident_count, 10u);
  }
  EXPECT_EQ(Fill(*cache), 0u);
  cache->Lower(0, 32);
  EXPECT_EQ(cache->pools()[0].slot_count, 10u) << "only Create() raises a budget";
  EXPECT_EQ(cache->counts(0).retired, 22u);
}

TEST(SlotCacheLower, LeasedOnesGoWhenTheirLeasesDo) {
  const auto cache = MakeCache(SmallCache(1, 16, 4));
  ASSERT_EQ(Fill(*cache), 4u);
  std::vector<SlotLease> leases;
  for (uint32_t e = 0; e < 4; ++e) leases.push_back(cache->Acquire(Key(0, e)));
  std::vector<uint64_t> generations;
  for (const SlotLease& lease : leases) generations.push_back(cache->generation(lease.ref()));
  cache->Lower(0, 0);
  EXPECT_EQ(cache->stats().resident_count, 0u);
  EXPECT_EQ(cache->counts(0).leaving, 4u);
  EXPECT_EQ(cache->counts(0).retired, 8u) << "the spares, at once";
  EXPECT_FALSE(cache->BeginFill(Key(0, 9)).ok());
  for (size_t i = 0; i < leases.size(); ++i) {
    EXPECT_EQ(cache->generation(leases[i].ref()), generations[i]);
  }
  leases.clear();
  cache->EndWindow(1);
  EXPECT_EQ(cache->counts(0).retired, 12u);
  for (uint32_t w = 0; w < 10; ++w) {
    EXPECT_EQ(RunWindow(*cache, Rotating(1, 4, 16, w)).swap_count, 0u);
  }
  EXPECT_EQ(cache->bytes(), 0u);
}

TEST(SlotCacheLower, WhatIsUnderWayLandsAndIsCutDownAfterwards) {
  const auto cache = MakeCache(SmallCache(1, 16, 4));
  ASSERT_EQ(Fill(*cache), 4u);
  const Swap swaps[] = {{Key(0, 8), Key(0, 0)}, {Key(0, 9), Key(0, 1)}, {Key(0, 10), Key(0, 2)}};
  SlotRef slots[3];
  for (int i = 0; i < 3; ++i) {
    cache->BeginSwap(swaps[i]);
    slots[i] = *cache->BeginFill(swaps[i].in);
  }
  cache->Lower(0, 1);
  EXPECT_TRUE(cache->resident(Key(0, 0))) << "a victim stays until the newcomer has landed";
  EXPECT_EQ(cache->stats().resident_count, 3u);
  cache->Land(slots[0], swaps[0]);
  cache->Discard(slots[1]);
  cache->CancelSwap(swaps[1]);
  cache->CancelSwap(swaps[2]);
  cache->Discard(slots[2]);
  EXPECT_EQ(cache->stats().resident_count, 1u);
  const SlotCounts counts = cache->counts(0);
  EXPECT_EQ(counts.retired, 3u);
  EXPECT_EQ(counts.free, 8u);
}

TEST(SlotCacheLower, InAWindowTheExpertsInUseGoAtItsEnd) {
  const auto cache = MakeCache(SmallCache(1, 16, 6));
  ASSERT_EQ(Fill(*cache), 6u);
  ObserveLayer(*cache, 0, {0, 1, 2, 3});
  cache->Lower(0, 2);
  for (uint32_t e = 0; e < 4; ++e) EXPECT_TRUE(cache->resident(Key(0, e)));
  EXPECT_TRUE(cache->Propose().empty());
  cache->EndWindow(1);
  EXPECT_EQ(cache->stats().resident_count, 2u);
}

TEST(SlotCacheLower, LayerMinimaDoNotKeepAPoolAboveItsSlots) {
  const auto cache = MakeCache(SmallCache(4, 64, 128));  // each layer keeps at least 8
  ASSERT_EQ(Fill(*cache), 128u);
  cache->Lower(0, 3);
  EXPECT_EQ(cache->stats().resident_count, 3u);
  cache->Lower(0, 0);
  EXPECT_EQ(cache->stats().resident_count, 0u);
}

}  // namespace
}  // namespace hearth
