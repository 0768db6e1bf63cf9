// Belady's oracle against every way of keeping items, and the set of numbers that it is made of.
#include "cache/policy/belady.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/policy/index_set.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

StepSequence RandomSteps(Prng& prng, uint32_t items, uint32_t steps) {
  StepSequence sequence{.item_count = items, .begins = {0}};
  for (uint32_t s = 0; s < steps; ++s) {
    std::set<uint32_t> used;
    const uint64_t count = prng.Below(4);
    while (used.size() < count) used.insert(static_cast<uint32_t>(prng.Below(items)));
    sequence.items.insert(sequence.items.end(), used.begin(), used.end());
    sequence.begins.push_back(sequence.items.size());
  }
  return sequence;
}

// The most hits of any way to choose, after each step, who is kept: sets are bit masks.
uint64_t BestByForce(const StepSequence& sequence, int slots, BeladyStart start) {
  std::map<uint32_t, uint64_t> best;  // kept set -> most hits so far
  for (uint32_t set = 0; set < 1u << sequence.item_count; ++set) {
    if (std::popcount(set) <= (start == BeladyStart::kFilled ? slots : 0)) best[set] = 0;
  }
  for (size_t s = 0; s + 1 < sequence.begins.size(); ++s) {
    uint32_t used = 0;
    for (uint64_t i = sequence.begins[s]; i < sequence.begins[s + 1]; ++i) {
      used |= 1u << sequence.items[i];
    }
    std::map<uint32_t, uint64_t> after;
    for (const auto& [kept, hits] : best) {
      const uint64_t now = hits + static_cast<uint64_t>(std::popcount(kept & used));
      const uint32_t could = kept | used;
      for (uint32_t set = could;; set = (set - 1) & could) {
        if (std::popcount(set) <= slots) {
          uint64_t& most = after[set];
          most = std::max(most, now);
        }
        if (set == 0) break;
      }
    }
    best = std::move(after);
  }
  uint64_t most = 0;
  for (const auto& [set, hits] : best) most = std::max(most, hits);
  return most;
}

TEST(BeladyTest, IsTheBestOfAllWays) {
  Prng prng(1);
  for (int round = 0; round < 60; ++round) {
    const StepSequence sequence = RandomSteps(prng, 6, 10);
    for (int slots = 0; slots <= 4; ++slots) {
      for (const BeladyStart start : {BeladyStart::kEmpty, BeladyStart::kFilled}) {
        EXPECT_EQ(Belady(sequence, static_cast<uint64_t>(slots), start).hit_count,
                  BestByForce(sequence, slots, start));
      }
    }
  }
}

TEST(BeladyTest, HitsAreNamedAndBypassedMissesAreNoFills) {
  // Steps {0} {1} {0} {2} {0}, one slot: 0 is kept throughout, 1 and 2 pass by.
  const StepSequence sequence{
      .item_count = 3, .items = {0, 1, 0, 2, 0}, .begins = {0, 1, 2, 3, 4, 5}};
  const BeladyResult result = Belady(sequence, 1, BeladyStart::kEmpty);
  EXPECT_THAT(result.hits, ElementsAre(0, 0, 1, 0, 1));
  EXPECT_EQ(result.hit_count, 2u);
  EXPECT_EQ(result.fill_count, 1u);
  const BeladyResult filled = Belady(sequence, 1, BeladyStart::kFilled);
  EXPECT_THAT(filled.hits, ElementsAre(1, 0, 1, 0, 1));
  EXPECT_EQ(filled.fill_count, 0u);
}

TEST(BeladyTest, NothingIsUsedAndNothingIsKept) {
  EXPECT_EQ(Belady({.item_count = 3, .begins = {0}}, 2, BeladyStart::kFilled).hit_count, 0u);
  EXPECT_EQ(Belady({.item_count = 1, .items = {0, 0}, .begins = {0, 1, 2}}, 0, BeladyStart::kFilled)
                .hit_count,
            0u);
}

TEST(IndexSetTest, IsASet) {
  for (const uint64_t bound : {1u, 63u, 64u, 65u, 4096u, 4097u, 300'000u}) {
    IndexSet set(bound);
    std::set<uint64_t> model;
    Prng prng(bound);
    for (int i = 0; i < 3000; ++i) {
      const uint64_t n = prng.Below(bound);
      ASSERT_EQ(set.Contains(n), model.contains(n));
      if (model.erase(n) != 0) {
        set.Erase(n);
      } else {
        set.Insert(n);
        model.insert(n);
      }
      ASSERT_EQ(set.count(), model.size());
      if (!model.empty()) {
        ASSERT_EQ(set.Largest(), *model.rbegin());
      }
    }
  }
}

}  // namespace
}  // namespace hearth
