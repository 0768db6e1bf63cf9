// What every residency policy promises, and what sets the shipped ones apart.
#include "cache/policy/residency_policy.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PoolShape Shape(uint32_t layers, uint32_t experts, uint32_t slots, uint32_t layer_slots_min = 0) {
  PoolShape shape{.layer_count = layers,
                  .expert_count = experts,
                  .slot_count = slots,
                  .layer_slots_min = layer_slots_min};
  for (uint32_t l = 0; l < layers; ++l) shape.layers.emplace_back(l);
  return shape;
}

std::unique_ptr<ResidencyPolicy> Make(std::string_view name, const PoolShape& shape) {
  auto policy = CreatePolicy(name, shape);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return std::move(policy).value();
}

ExpertKey Key(uint32_t layer, uint32_t expert) { return {LayerId(layer), ExpertId(expert)}; }

void Observe(ResidencyPolicy& policy, uint32_t layer, const std::set<uint32_t>& experts,
             TrafficKind kind = TrafficKind::kWindow, uint32_t entry_count = 1) {
  std::vector<ExpertSighting> sightings;
  for (const uint32_t e : experts) sightings.push_back({ExpertId(e), entry_count});
  policy.Observe({.layer = LayerId(layer), .experts = sightings, .kind = kind});
}

std::vector<Swap> Propose(ResidencyPolicy& policy, size_t count_max = 64) {
  std::vector<Swap> swaps(count_max);
  swaps.resize(policy.Propose(swaps));
  return swaps;
}

size_t TakeAll(ResidencyPolicy& policy, size_t count_max = 64) {
  const std::vector<Swap> swaps = Propose(policy, count_max);
  for (const Swap& swap : swaps) policy.Begin(swap);
  for (const Swap& swap : swaps) policy.Land(swap);
  return swaps.size();
}

// One window of one layer, with every proposal taken up.
void Window(ResidencyPolicy& policy, uint32_t layer, const std::set<uint32_t>& experts) {
  Observe(policy, layer, experts);
  TakeAll(policy);
  policy.EndWindow(1);
}

std::set<uint32_t> RandomExperts(Prng& prng, uint32_t expert_count, uint32_t count) {
  std::set<uint32_t> experts;
  while (experts.size() < count) {
    const double u = prng.Uniform();
    experts.insert(static_cast<uint32_t>(u * u * expert_count));
  }
  return experts;
}

class EveryPolicyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPolicyTest, FillsFreeSlotsFirst) {
  auto policy = Make(GetParam(), Shape(1, 8, 3));
  Observe(*policy, 0, {1, 4});
  for (const Swap& swap : Propose(*policy)) EXPECT_FALSE(swap.out.layer.valid());
  EXPECT_EQ(TakeAll(*policy), 2u);
  EXPECT_EQ(policy->resident_count(), 2u);
  EXPECT_TRUE(policy->resident(Key(0, 1)));
  EXPECT_TRUE(policy->resident(Key(0, 4)));
}

TEST_P(EveryPolicyTest, ProposeChangesNothing) {
  auto policy = Make(GetParam(), Shape(2, 16, 6));
  Prng prng(3);
  for (int i = 0; i < 200; ++i) {
    const uint32_t layer = i % 2;
    Observe(*policy, layer, RandomExperts(prng, 16, 3));
    const std::vector<Swap> once = Propose(*policy);
    const std::vector<Swap> twice = Propose(*policy);
    ASSERT_EQ(once.size(), twice.size());
    for (size_t j = 0; j < once.size(); ++j) {
      EXPECT_EQ(once[j].in, twice[j].in);
      EXPECT_EQ(once[j].out, twice[j].out);
    }
    TakeAll(*policy, 2);
    if (layer == 1) policy->EndWindow(1);
  }
}

// Random windows of several layers, swaps that take several windows, cancelled ones, resizes and
// removals, against a plain model of who is resident.
TEST_P(EveryPolicyTest, KeepsItsPromisesOverRandomLives) {
  constexpr uint32_t kLayers = 3;
  constexpr uint32_t kExperts = 24;
  constexpr uint32_t kFloor = 2;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng prng(seed);
    uint32_t slots = 10 + static_cast<uint32_t>(prng.Below(30));
    auto policy = Make(GetParam(), Shape(kLayers, kExperts, slots, kFloor));
    std::set<ExpertKey> residents;
    std::vector<Swap> under_way;
    const auto finish = [&](size_t i) {
      const Swap swap = under_way[i];
      under_way.erase(under_way.begin() + static_cast<ptrdiff_t>(i));
      if (prng.Below(4) == 0) return policy->Cancel(swap);
      policy->Land(swap);
      residents.insert(swap.in);
      residents.erase(swap.out);
    };
    for (int window = 0; window < 150; ++window) {
      std::set<ExpertKey> current;
      for (uint32_t l = 0; l < kLayers; ++l) {
        const auto experts = RandomExperts(prng, kExperts, 1 + prng.Below(4));
        for (const uint32_t e : experts) current.insert(Key(l, e));
        Observe(*policy, l, experts);
        std::set<ExpertKey> victims;
        std::vector<uint32_t> leaving(kLayers);
        for (const Swap& swap : Propose(*policy, 1 + prng.Below(5))) {
          EXPECT_EQ(swap.in.layer, LayerId(l));
          EXPECT_TRUE(current.contains(swap.in));
          EXPECT_FALSE(residents.contains(swap.in));
          for (const Swap& other : under_way) EXPECT_NE(other.in, swap.in);
          if (swap.out.layer.valid()) {
            EXPECT_TRUE(residents.contains(swap.out));
            EXPECT_FALSE(current.contains(swap.out));
            EXPECT_TRUE(victims.insert(swap.out).second);
            for (const Swap& other : under_way) EXPECT_NE(other.out, swap.out);
            const auto of_layer = std::ranges::count_if(
                residents, [&](ExpertKey k) { return k.layer == swap.out.layer; });
            if (swap.out.layer != swap.in.layer) {
              EXPECT_GT(of_layer - ++leaving[swap.out.layer.value] + 1, kFloor);
            }
          }
          if (prng.Below(3) == 0) continue;  // not taken up
          policy->Begin(swap);
          under_way.push_back(swap);
        }
        while (!under_way.empty() && prng.Below(2) == 0) finish(prng.Below(under_way.size()));
        EXPECT_EQ(policy->resident_count(), residents.size());
        EXPECT_LE(residents.size(), std::max<size_t>(slots, residents.size()));
      }
      policy->EndWindow(1 + static_cast<uint32_t>(prng.Below(4)));
      if (prng.Below(20) == 0) {
        slots = 8 + static_cast<uint32_t>(prng.Below(30));
        policy->Resize(slots);
        while (policy->resident_count() > slots && policy->Coldest().layer.valid()) {
          const ExpertKey out = policy->Coldest();
          EXPECT_TRUE(residents.erase(out));
          policy->Remove(out);
        }
      }
      for (uint32_t l = 0; l < kLayers; ++l) {
        for (uint32_t e = 0; e < kExperts; ++e) {
          ASSERT_EQ(policy->resident(Key(l, e)), residents.contains(Key(l, e)));
        }
      }
    }
  }
}

TEST_P(EveryPolicyTest, IsDeterministic) {
  std::vector<std::vector<ExpertKey>> ends;
  for (int run = 0; run < 2; ++run) {
    auto policy = Make(GetParam(), Shape(2, 64, 40));
    Prng prng(11);
    for (int i = 0; i < 500; ++i) {
      for (uint32_t l = 0; l < 2; ++l) {
        Observe(*policy, l, RandomExperts(prng, 64, 6));
        TakeAll(*policy, 2);
      }
      policy->EndWindow(1);
    }
    std::vector<ExpertKey> residents;
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint32_t e = 0; e < 64; ++e) {
        if (policy->resident(Key(l, e))) residents.push_back(Key(l, e));
      }
    }
    ends.push_back(residents);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_P(EveryPolicyTest, AllocatesNothingAfterCreate) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has an operator new of its own";
  constexpr uint32_t kExperts = 128;
  auto policy = Make(GetParam(), Shape(4, kExperts, 200, 8));
  std::vector<ExpertSighting> all;
  for (uint32_t e = 0; e < kExperts; ++e) all.push_back({ExpertId(e), 1 + e});
  std::vector<float> seeds(kExperts, 2.0f);
  std::vector<Swap> swaps(kExperts);
  std::vector<ExpertKey> hottest(100);
  const PoolShape shape = Shape(4, kExperts, 200, 8);
  const uint64_t before = AllocationCount();
  for (uint32_t i = 0; i < 100; ++i) {
    for (uint32_t call = 0; call < 12; ++call) {  // a layer may be observed several times in a pass
      const LayerId layer(call % 4);
      const size_t first = (i * 7 + call) % 64;
      policy->Observe({.layer = layer,
                       .experts = std::span(all).subspan(first, i % 5 == 0 ? 64 : 20),
                       .kind = i % 5 == 0 ? TrafficKind::kPrompt : TrafficKind::kWindow});
      const size_t count = policy->Propose(std::span(swaps).first(i % 2 == 0 ? 2 : kExperts));
      for (size_t j = 0; j < count; ++j) policy->Begin(swaps[j]);
      for (size_t j = 0; j < count; ++j) {
        j % 3 == 0 ? policy->Cancel(swaps[j]) : policy->Land(swaps[j]);
      }
    }
    policy->EndWindow(i % 40);
    if (i == 50) policy->Seed(LayerId(1), seeds);
    (void)policy->Coldest();
    (void)HottestExperts(*policy, shape, hottest);
  }
  EXPECT_EQ(AllocationCount(), before);
}

TEST_P(EveryPolicyTest, ResizedSmallerItProposesNothingUntilTheColdestAreGone) {
  auto policy = Make(GetParam(), Shape(1, 16, 6));
  for (uint32_t e = 0; e < 6; ++e) Window(*policy, 0, {e});
  policy->Resize(4);
  Observe(*policy, 0, {9});
  EXPECT_TRUE(Propose(*policy).empty());
  policy->EndWindow(1);
  while (policy->resident_count() > 4) policy->Remove(policy->Coldest());
  policy->Resize(5);
  Observe(*policy, 0, {9});
  EXPECT_EQ(TakeAll(*policy), 1u);
  EXPECT_EQ(policy->resident_count(), 5u);
}

TEST_P(EveryPolicyTest, APoolOfNoSlotsHoldsNothing) {
  auto policy = Make(GetParam(), Shape(2, 8, 0));
  Observe(*policy, 0, {1, 2});
  EXPECT_TRUE(Propose(*policy).empty());
  EXPECT_FALSE(policy->Coldest().layer.valid());
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicyTest, ::testing::ValuesIn(PolicyNames()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(TwoScalePolicyTest, AWindowOfFourDecaysAsFourWindowsOfOne) {
  auto one = Make("two-scale", Shape(1, 4, 2));
  auto four = Make("two-scale", Shape(1, 4, 2));
  for (ResidencyPolicy* policy : {one.get(), four.get()}) {
    Observe(*policy, 0, {1});
    policy->EndWindow(1);
  }
  for (int i = 0; i < 4; ++i) one->EndWindow(1);
  four->EndWindow(4);
  EXPECT_GT(one->Heat(Key(0, 1)), 0);
  EXPECT_NEAR(one->Heat(Key(0, 1)), four->Heat(Key(0, 1)), 1e-6);
}

TEST(TwoScalePolicyTest, AWindowIsOneSightingHoweverManyRowsChoseTheExpert) {
  auto policy = Make("two-scale", Shape(1, 4, 2));
  policy->Observe({.layer = LayerId(0),
                   .experts = std::vector<ExpertSighting>{{ExpertId(0), 1}, {ExpertId(1), 4}}});
  EXPECT_EQ(policy->Heat(Key(0, 0)), policy->Heat(Key(0, 1)));
}

TEST(TwoScalePolicyTest, APromptCountsEveryEntryAtASmallWeight) {
  auto policy = Make("two-scale", Shape(1, 4, 2));
  Observe(*policy, 0, {0}, TrafficKind::kPrompt, 10);
  EXPECT_NEAR(policy->Heat(Key(0, 0)), 0.3f, 1e-6);
}

TEST(TwoScalePolicyTest, EqualHeatDoesNotPingPong) {
  auto policy = Make("two-scale", Shape(1, 3, 1));
  Window(*policy, 0, {0});
  uint32_t swaps = 0;
  for (int i = 0; i < 400; ++i) {
    Observe(*policy, 0, {static_cast<uint32_t>(i % 2 == 0 ? 1 : 0)});
    swaps += TakeAll(*policy);
    policy->EndWindow(1);
  }
  EXPECT_LE(swaps, 2u);
}

TEST(TwoScalePolicyTest, WhatIsHotterByAMarginComesIn) {
  auto policy = Make("two-scale", Shape(1, 3, 1));
  Window(*policy, 0, {0});
  for (int i = 0; i < 20; ++i) Window(*policy, 0, {1});
  EXPECT_TRUE(policy->resident(Key(0, 1)));
  EXPECT_FALSE(policy->resident(Key(0, 0)));
}

TEST(TwoScalePolicyTest, SeedsRankTheFirstFill) {
  const PoolShape shape = Shape(2, 4, 3);
  auto policy = Make("two-scale", shape);
  policy->Seed(LayerId(0), std::vector<float>{0, 3, 0, 5});
  policy->Seed(LayerId(1), std::vector<float>{4, 0, 0, 0});
  std::vector<ExpertKey> hottest(4);
  ASSERT_EQ(HottestExperts(*policy, shape, hottest), 4u);
  EXPECT_THAT(hottest, ElementsAre(Key(0, 3), Key(1, 0), Key(0, 1), Key(0, 0)));
}

TEST(PooledPolicyTest, AnyLayerMayTakeAnothersSlotDownToItsMinimum) {
  auto policy = Make("lru", Shape(2, 16, 6, 2));
  for (uint32_t e = 0; e < 6; ++e) Window(*policy, 0, {e});
  for (uint32_t e = 0; e < 12; ++e) Window(*policy, 1, {e});
  uint32_t of_first = 0;
  for (uint32_t e = 0; e < 16; ++e) of_first += policy->resident(Key(0, e)) ? 1 : 0;
  EXPECT_EQ(of_first, 2u);
}

TEST(PooledPolicyTest, ALayerBelowItsMinimumIsLetInHoweverCold) {
  auto policy = Make("two-scale", Shape(2, 16, 6, 2));
  for (int i = 0; i < 50; ++i) Window(*policy, 0, {0, 1, 2, 3, 4, 5});
  Window(*policy, 1, {7});
  Window(*policy, 1, {8});
  Window(*policy, 1, {9});
  const auto residents_of = [&](uint32_t layer) {
    uint32_t count = 0;
    for (uint32_t e = 0; e < 16; ++e) count += policy->resident(Key(layer, e)) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(residents_of(1), 2u);  // the third one is too cold to take another layer's place
  EXPECT_EQ(residents_of(0), 4u);
}

TEST(PooledPolicyTest, LayersOfOtherPoolsAreNotHeld) {
  PoolShape shape = Shape(3, 4, 2);
  shape.layers = {LayerId(2)};
  auto policy = Make("lru", shape);
  Window(*policy, 2, {1});
  EXPECT_TRUE(policy->resident(Key(2, 1)));
  EXPECT_FALSE(policy->resident(Key(0, 1)));
  EXPECT_EQ(policy->Heat(Key(0, 1)), 0);
}

TEST(PooledPolicyTest, ACancelledSwapIsAsIfItHadNotBegun) {
  auto policy = Make("lru", Shape(1, 8, 2));
  Window(*policy, 0, {0});
  Window(*policy, 0, {1});
  Observe(*policy, 0, {2});
  const std::vector<Swap> swaps = Propose(*policy);
  ASSERT_EQ(swaps.size(), 1u);
  policy->Begin(swaps[0]);
  EXPECT_TRUE(Propose(*policy).empty());  // on its way
  policy->Cancel(swaps[0]);
  const std::vector<Swap> again = Propose(*policy);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].in, swaps[0].in);
  EXPECT_EQ(again[0].out, swaps[0].out);
}

// The reference: a list per pool, most recent last; a window's experts are never evicted.
TEST(LruPolicyTest, IsTheTextbookPolicy) {
  constexpr uint32_t kLayers = 3;
  constexpr uint32_t kExperts = 40;
  constexpr uint32_t kSlots = 30;
  auto policy = Make("lru", Shape(kLayers, kExperts, kSlots));
  std::map<ExpertKey, uint64_t> last;  // when a resident was last used
  uint64_t clock = 0;
  Prng prng(5);
  for (int window = 0; window < 2000; ++window) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      const auto experts = RandomExperts(prng, kExperts, 5);
      Observe(*policy, l, experts);
      TakeAll(*policy);
      for (const uint32_t e : experts) last[Key(l, e)] = ++clock;
      while (last.size() > kSlots) {
        last.erase(std::ranges::min_element(last, {}, [](const auto& e) { return e.second; }));
      }
    }
    policy->EndWindow(1);
    ASSERT_EQ(policy->resident_count(), last.size());
    for (const auto& [key, when] : last) ASSERT_TRUE(policy->resident(key)) << window;
  }
}

TEST(StaticPolicyTest, KeepsWhatItHas) {
  auto policy = Make("static", Shape(1, 8, 2));
  Window(*policy, 0, {0, 1});
  for (int i = 0; i < 100; ++i) Window(*policy, 0, {2, 3});
  EXPECT_TRUE(policy->resident(Key(0, 0)));
  EXPECT_TRUE(policy->resident(Key(0, 1)));
}

TEST(CreatePolicyTest, AnUnknownNameListsThoseThatExist) {
  const auto policy = CreatePolicy("lruu", Shape(1, 8, 2));
  EXPECT_EQ(policy.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(policy.status().message()), HasSubstr("'lruu', expected one of lru, l"));
}

TEST(CreatePolicyTest, AShapeThatIsNoneIsRefused) {
  EXPECT_FALSE(CreatePolicy("lru", Shape(2, 8, 3, 2)).ok());  // minimum above an even share
  PoolShape twice = Shape(2, 8, 3);
  twice.layers = {LayerId(1), LayerId(1)};
  EXPECT_FALSE(CreatePolicy("lru", twice).ok());
  PoolShape beyond = Shape(2, 8, 3);
  beyond.layers = {LayerId(2)};
  EXPECT_FALSE(CreatePolicy("lru", beyond).ok());
  EXPECT_FALSE(CreatePolicy("lru", PoolShape{.layer_count = 2, .slot_count = 3}).ok());
}

}  // namespace
}  // namespace hearth
