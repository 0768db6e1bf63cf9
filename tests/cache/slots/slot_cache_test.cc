// The rules of the slot cache one by one: sizes from none to all, the life of a swap, bounds of a
// layer and a window, and the first fill.
#include "cache/slots/slot_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "tests/cache/slots/slot_driver.h"

namespace hearth {
namespace {

using Routes = std::vector<std::vector<uint32_t>>;

// `count` distinct experts of `range` from `first` on, for each layer.
Routes RandomRoutes(Prng& prng, uint32_t layers, uint32_t count, uint32_t first, uint32_t range) {
  Routes routes(layers);
  for (auto& layer : routes) {
    std::set<uint32_t> chosen;
    while (chosen.size() < count) chosen.insert(first + static_cast<uint32_t>(prng.Below(range)));
    layer.assign(chosen.begin(), chosen.end());
  }
  return routes;
}

TEST(SlotCache, EverySizeFromNoneToAllServesWindowsWithinItsSlots) {
  for (const std::string policy : {"two-scale", "lru", "lfu", "decay", "static"}) {
    for (const uint64_t slots : {0, 1, 2, 3, 4, 5, 8, 31, 32, 40}) {  // 2 layers of 16, top 4
      SlotCacheOptions options = SmallCache(2, 16, slots);
      options.policy = policy;
      const auto cache = MakeCache(options);
      Prng prng(slots);
      Fill(*cache);
      for (int w = 0; w < 100; ++w) {
        const WindowResult r = RunWindow(*cache, RandomRoutes(prng, 2, 4, 0, 16));
        ASSERT_EQ(r.hit_count + r.miss_count, 8u);
        ASSERT_LE(cache->stats().resident_count, std::min<uint64_t>(slots, 32));
        ASSERT_TRUE(slots < 32 || r.hit_count == 8);
        ASSERT_TRUE(slots > 0 || r.hit_count + r.swap_count == 0);
      }
      EXPECT_EQ(cache->stats().resident_count, std::min<uint64_t>(slots, 32)) << policy << slots;
    }
  }
}

TEST(SlotCache, ABudgetForEveryExpertNeverSwapsAndHasNoSpares) {
  const auto cache = MakeCache(SmallCache(3, 16, 48));
  EXPECT_EQ(cache->pools()[0].total_count(), 48u);
  EXPECT_EQ(cache->bytes(), 48u * 1024);
  Prng prng(1);
  uint32_t swaps = 0;
  for (int w = 0; w < 300; ++w) {
    const WindowResult r = RunWindow(*cache, RandomRoutes(prng, 3, 4, 0, 16));
    swaps += r.swap_count;
    ASSERT_EQ(r.eviction_count, 0u);
  }
  EXPECT_EQ(swaps, 48u);
  EXPECT_FALSE(cache->stats().pinned);
}

TEST(SlotCache, HitsRiseWithTheBudgetWhenTopicsAlternate) {
  uint32_t before = 0;
  for (const uint64_t slots : {8, 16, 32}) {
    const auto cache = MakeCache(SmallCache(2, 16, slots));
    Prng prng(4);
    uint32_t hits = 0;
    for (int topic = 0; topic < 20; ++topic) {
      for (int w = 0; w < 10; ++w) {
        hits += RunWindow(*cache, RandomRoutes(prng, 2, 2, topic % 2 * 8, 8)).hit_count;
        ASSERT_LE(cache->stats().resident_count, slots);
      }
    }
    EXPECT_GT(hits, before);
    before = hits;
  }
}

TEST(SlotCache, AVictimIsReadableUntilTheNewcomerHasLanded) {
  const auto cache = MakeCache(SmallCache(1, 8, 1));
  ASSERT_TRUE(CarryOut(*cache, {Key(0, 0), ExpertKey()}));
  const Swap swap = {Key(0, 1), Key(0, 0)};
  cache->BeginSwap(swap);
  const absl::StatusOr<SlotRef> slot = cache->BeginFill(swap.in);
  ASSERT_TRUE(slot.ok());
  EXPECT_TRUE(cache->Acquire(Key(0, 0)).valid());
  EXPECT_FALSE(cache->Acquire(Key(0, 1)).valid());
  EXPECT_NE(cache->Acquire(Key(0, 0)).ref(), *slot);
  cache->Land(*slot, swap);
  EXPECT_FALSE(cache->Acquire(Key(0, 0)).valid());
  EXPECT_EQ(cache->Acquire(Key(0, 1)).ref(), *slot);
  EXPECT_EQ(cache->stats().swap_count, 2u);
  EXPECT_EQ(cache->stats().swap_bytes, 2000u);
}

TEST(SlotCache, AVictimThatIsLeasedKeepsItsSlotUntilTheLastLeaseGoes) {
  SlotCacheOptions options = SmallCache(1, 8, 1);
  options.spare_count = 1;
  const auto cache = MakeCache(options);
  ASSERT_TRUE(CarryOut(*cache, {Key(0, 0), ExpertKey()}));
  SlotLease first = cache->Acquire(Key(0, 0));
  SlotLease second = cache->Acquire(Key(0, 0));
  const uint64_t generation = cache->generation(first.ref());
  ASSERT_TRUE(CarryOut(*cache, {Key(0, 1), Key(0, 0)}));
  EXPECT_EQ(cache->state(first.ref()), SlotState::kLeaving);
  EXPECT_EQ(cache->BeginFill(Key(0, 2)).status().code(), absl::StatusCode::kResourceExhausted);
  const SlotRef held = first.ref();
  first = SlotLease();
  EXPECT_EQ(cache->BeginFill(Key(0, 2)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->generation(held), generation);
  second = SlotLease();
  const absl::StatusOr<SlotRef> slot = cache->BeginFill(Key(0, 2));
  ASSERT_TRUE(slot.ok());
  EXPECT_EQ(*slot, held);
  EXPECT_EQ(cache->generation(held), generation + 1);
  cache->Discard(*slot);
}

TEST(SlotCache, UploadsTakeSparesAndGiveThemBack) {
  SlotCacheOptions options = SmallCache(1, 8, 2);
  options.spare_count = 2;
  const auto cache = MakeCache(options);
  ASSERT_EQ(Fill(*cache), 2u);
  const absl::StatusOr<SlotRef> a = cache->BeginFill(Key(0, 5));
  const absl::StatusOr<SlotRef> b = cache->BeginFill(Key(0, 6));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(cache->BeginFill(Key(0, 5)).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(cache->BeginFill(Key(0, 7)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(cache->resident(Key(0, 5))) << "what is being filled is not to be read";
  cache->Discard(*a);
  EXPECT_TRUE(cache->BeginFill(Key(0, 7)).ok());
  EXPECT_EQ(cache->counts(0).resident, 2u);
}

TEST(SlotCache, ACancelledSwapIsAsIfItHadNotBegun) {
  SlotCacheOptions options = SmallCache(1, 8, 3);
  options.policy = "lru";
  const auto cache = MakeCache(options);
  for (uint32_t e = 0; e < 3; ++e) RunWindow(*cache, Routes{{e}});
  ObserveLayer(*cache, 0, {0, 5});
  const std::vector<Swap> swaps(1, cache->Propose()[0]);
  cache->BeginSwap(swaps[0]);
  EXPECT_TRUE(cache->Propose().empty()) << "what is on its way is not proposed again";
  const absl::StatusOr<SlotRef> slot = cache->BeginFill(swaps[0].in);
  ASSERT_TRUE(slot.ok());
  cache->CancelSwap(swaps[0]);
  cache->Discard(*slot);
  ObserveLayer(*cache, 0, {0, 5});
  ASSERT_EQ(cache->Propose().size(), 1u);
  EXPECT_EQ(cache->Propose()[0].in, swaps[0].in);
  EXPECT_EQ(cache->Propose()[0].out, Key(0, 1));
  EXPECT_EQ(cache->stats().cancelled_count, 1u);
  EXPECT_TRUE(cache->resident(Key(0, 1)));
}

// A cache of GreedyPolicy, which the test looks into.
struct GreedyCache {
  std::map<ExpertKey, float> heat;
  GreedyPolicy* policy = nullptr;
  std::unique_ptr<SlotCache> cache;

  explicit GreedyCache(SlotCacheOptions options) {
    options.make_policy =
        [this](const PoolShape&) -> absl::StatusOr<std::unique_ptr<ResidencyPolicy>> {
      auto made = std::make_unique<GreedyPolicy>(&heat);
      policy = made.get();
      return made;
    };
    cache = MakeCache(options);
  }
};

TEST(SlotCache, AWindowSwapsNoMoreBytesThanItMay) {
  SlotCacheOptions options = SmallCache(3, 16, 24);
  options.swap_bytes_per_window_max = 3500;
  GreedyCache greedy(options);
  SlotCache& cache = *greedy.cache;
  Fill(cache);  // between windows: not of their bytes
  Prng prng(3);
  uint32_t most = 0;
  for (int w = 0; w < 20; ++w) {
    const uint32_t swaps = RunWindow(cache, RandomRoutes(prng, 3, 4, 0, 16)).swap_count;
    EXPECT_LE(swaps, 3u);
    most = std::max(most, swaps);
  }
  EXPECT_EQ(most, 3u);
}

TEST(SlotCache, ALayerSwapsNoMoreThanItMayHoweverOftenItIsAsked) {
  SlotCacheOptions options = SmallCache(2, 16, 20);
  options.swaps_per_layer_max = 3;
  const GreedyCache greedy(options);
  SlotCache& cache = *greedy.cache;
  Fill(cache);
  ObserveLayer(cache, 0, {10, 11, 12, 13, 14, 15});
  uint32_t swaps = 0;
  while (!cache.Propose().empty()) {
    const Swap swap = cache.Propose()[0];
    ASSERT_TRUE(CarryOut(cache, swap));
    ASSERT_LE(++swaps, 3u);
  }
  EXPECT_EQ(swaps, 3u);
  ObserveLayer(cache, 1, {10, 11, 12, 13, 14, 15});
  EXPECT_EQ(cache.Propose().size(), 3u);
}

TEST(SlotCache, APolicyThatWantsTooMuchIsHeldToTheSlots) {
  GreedyCache greedy(SmallCache(1, 16, 4));
  SlotCache& cache = *greedy.cache;
  greedy.policy->is_growing = true;
  for (int w = 0; w < 5; ++w) RunWindow(cache, Routes{{0, 1, 2, 3, 4, 5, 6, 7}});
  EXPECT_EQ(cache.stats().resident_count, 4u);
}

TEST(SlotCache, NoMoreSwapsAreProposedThanSlotsAreFree) {
  SlotCacheOptions options = SmallCache(1, 16, 12);
  options.spare_count = 1;
  const GreedyCache greedy(options);
  SlotCache& cache = *greedy.cache;
  Fill(cache);
  ObserveLayer(cache, 0, {13, 14, 15});
  EXPECT_EQ(cache.Propose().size(), 1u);
  const absl::StatusOr<SlotRef> upload = cache.BeginFill(Key(0, 13));
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE(cache.Propose().empty());
}

TEST(SlotCache, TheFirstFillTakesTheHottestOfTheSeed) {
  const auto cache = MakeCache(SmallCache(2, 8, 5));
  cache->Seed(LayerId(0), std::vector<float>{0, 9, 0, 8, 0, 0, 0, 1});
  cache->Seed(LayerId(1), std::vector<float>{7, 0, 0, 6, 0, 0, 5, 0});
  EXPECT_GT(cache->Heat(Key(0, 1)), cache->Heat(Key(0, 3)));
  std::vector<Swap> swaps(3);
  ASSERT_EQ(cache->ProposeFill(swaps), 3u);
  EXPECT_EQ(swaps[0].in, Key(0, 1));
  EXPECT_EQ(swaps[1].in, Key(0, 3));
  EXPECT_EQ(swaps[2].in, Key(1, 0));
  for (const Swap& swap : swaps) {
    EXPECT_FALSE(swap.out.layer.valid());
    cache->BeginSwap(swap);
  }
  swaps.resize(9);
  ASSERT_EQ(cache->ProposeFill(swaps), 2u) << "those under way are counted";
  EXPECT_EQ(swaps[0].in, Key(1, 3));
  EXPECT_EQ(swaps[1].in, Key(1, 6));
}

TEST(SlotCache, AColdFirstFillServesAllLayersAlike) {
  const auto cache = MakeCache(SmallCache(4, 16, 24));
  EXPECT_EQ(Fill(*cache), 24u);
  EXPECT_EQ(Fill(*cache), 0u);
  for (uint32_t l = 0; l < 4; ++l) {
    uint32_t resident = 0;
    for (uint32_t e = 0; e < 16; ++e) resident += cache->resident(Key(l, e)) ? 1 : 0;
    EXPECT_EQ(resident, 6u);
  }
}

TEST(SlotCache, TheFirstFillLeavesNoLayerBelowItsMinimum) {
  const auto cache = MakeCache(SmallCache(2, 64, 32));  // each layer keeps at least 4
  cache->Seed(LayerId(0), std::vector<float>(64, 5));
  std::vector<float> cold(64, 0.1f);
  cold[60] = 0.2f;
  cache->Seed(LayerId(1), cold);
  ASSERT_EQ(Fill(*cache), 32u);
  uint32_t resident = 0;
  for (uint32_t e = 0; e < 64; ++e) resident += cache->resident(Key(1, e)) ? 1 : 0;
  EXPECT_EQ(resident, 4u);
  EXPECT_TRUE(cache->resident(Key(1, 60)));
}

TEST(SlotCache, ALayerOfWhichNothingIsKnownIsFilledLast) {
  const auto cache = MakeCache(SmallCache(2, 64, 80));  // each layer keeps at least 8
  cache->Seed(LayerId(0), std::vector<float>(64, 5));
  std::vector<Swap> swaps(80);
  ASSERT_EQ(cache->ProposeFill(swaps), 80u);
  for (size_t i = 0; i < swaps.size(); ++i) {
    EXPECT_EQ(swaps[i].in.layer, LayerId(i < 64 ? 0 : 1)) << i;
  }
}

TEST(SlotCache, APromptBringsItsExpertsIntoTheFreeSlots) {
  const auto cache = MakeCache(SmallCache(2, 16, 4));
  ObserveLayer(*cache, 0, {3, 9}, TrafficKind::kPrompt);
  ObserveLayer(*cache, 1, {4, 5}, TrafficKind::kPrompt);
  cache->EndWindow(100);
  EXPECT_EQ(Fill(*cache), 4u);
  for (const ExpertKey key : {Key(0, 3), Key(0, 9), Key(1, 4), Key(1, 5)}) {
    EXPECT_TRUE(cache->resident(key));
  }
}

TEST(SlotCache, TheLogHoldsTheLastSwapsNewestFirst) {
  const auto cache = MakeCache(SmallCache(1, 128, 1));
  std::vector<LandedSwap> log(kSwapLogCount + 1);
  EXPECT_EQ(cache->RecentSwaps(log), 0u);
  ASSERT_TRUE(CarryOut(*cache, {Key(0, 0), ExpertKey()}));
  EXPECT_EQ(cache->RecentSwaps(log), 1u);
  EXPECT_EQ(log[0].in, Key(0, 0));
  EXPECT_FALSE(log[0].out.layer.valid());
  for (uint32_t i = 1; i < 100; ++i) {
    cache->EndWindow(1);
    ASSERT_TRUE(CarryOut(*cache, {Key(0, i), Key(0, i - 1)}));
  }
  ASSERT_EQ(cache->RecentSwaps(log), kSwapLogCount);
  for (uint32_t i = 0; i < kSwapLogCount; ++i) {
    EXPECT_EQ(log[i].in, Key(0, 99 - i));
    EXPECT_EQ(log[i].out, Key(0, 98 - i));
    EXPECT_EQ(log[i].window, 99 - i);
  }
  EXPECT_EQ(cache->RecentSwaps(std::span(log).first(2)), 2u);
  EXPECT_EQ(log[1].in, Key(0, 98));
}

TEST(SlotCache, PoolsOfDifferentBytesDoNotMix) {
  SlotCacheOptions options = SmallCache(4, 16, 32);
  options.blob_bytes = {1000, 2000, 1000, 2000};
  options.policy = "lru";
  const auto cache = MakeCache(options);
  ASSERT_EQ(cache->pools().size(), 2u);
  EXPECT_EQ(cache->pool_of(LayerId(3)), 1u);
  Prng prng(5);
  for (int w = 0; w < 100; ++w) {
    RunWindow(*cache, RandomRoutes(prng, 4, 4, 0, 16));
    ASSERT_LE(cache->counts(0).resident, 16u);
    ASSERT_LE(cache->counts(1).resident, 16u);
  }
  EXPECT_EQ(cache->stats().resident_count, 32u);
  const SlotLease lease = cache->Acquire([&] {
    uint32_t e = 0;
    while (!cache->resident(Key(1, e))) ++e;
    return Key(1, e);
  }());
  EXPECT_EQ(lease.ref().pool, 1u);
}

TEST(SlotCache, CreateRefusesWhatCannotBeDone) {
  SlotCacheOptions options = SmallCache(2, 16, 4);
  options.policy = "no-such";
  EXPECT_EQ(SlotCache::Create(options).status().code(), absl::StatusCode::kNotFound);
  options = SmallCache(2, 16, 4);
  options.budget.share = 0.5;
  EXPECT_EQ(SlotCache::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.budget = {.bytes = 100};
  EXPECT_EQ(SlotCache::Create(options).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SlotCache, ARoundedBudgetIsNoted) {
  EXPECT_THAT(MakeCache(SmallCache(2, 16, 99))->notes(),
              testing::ElementsAre(testing::HasSubstr("99")));
}

TEST(SlotCacheDeathTest, BreachesOfTheLifeOfASwapStop) {
  const auto cache = MakeCache(SmallCache(2, 16, 4));
  ASSERT_EQ(Fill(*cache), 4u);
  const ExpertKey in = Key(0, 9);
  const ExpertKey out = Key(0, 0);
  ASSERT_TRUE(cache->resident(out));
  EXPECT_DEATH((void)cache->BeginFill(out), "kFilling");
  EXPECT_DEATH(cache->BeginSwap({out, in}), "resident");
  EXPECT_DEATH(cache->BeginSwap({in, Key(0, 8)}), "resident");
  EXPECT_DEATH(cache->CancelSwap({in, out}), "kIncoming");
  const SlotRef slot = *cache->BeginFill(in);
  EXPECT_DEATH(cache->Land(slot, {in, out}), "kIncoming") << "of a swap that has not begun";
  cache->BeginSwap({in, out});
  EXPECT_DEATH(cache->BeginSwap({in, out}), "kIncoming");
  EXPECT_DEATH(cache->Land(slot, {in, Key(0, 1)}), "kOutgoing");
  cache->Land(slot, {in, out});
}

}  // namespace
}  // namespace hearth
