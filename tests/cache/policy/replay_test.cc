// Replay: windows, pools, warm-up, and the oracles that no policy beats.
#include "cache/policy/replay.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/policy/policy_table.h"
#include "cache/policy/profile_seed.h"
#include "cache/policy/trace_windows.h"
#include "tests/cache/policy/random_trace.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PolicyMaker Maker(std::string_view name) {
  const PolicyEntry* const entry = FindPolicy(name);
  return [entry](const PoolShape& shape) { return MakePolicy(*entry, shape); };
}

// One layer, top 1: the experts in turn.
RouteTrace Plain(std::vector<uint16_t> experts) {
  return {.identity = {.layer_count = 1, .expert_count = 8, .ranks = 1},
          .text_begins = {0},
          .routes = std::move(experts)};
}

TEST(CutWindowsTest, CountsEachDistinctExpertOnceAndItsEntries) {
  const TraceWindows windows = CutWindows(Plain({3, 1, 3, 3, 2}), 4);
  ASSERT_EQ(windows.window_count(), 2u);
  EXPECT_THAT(windows.token_counts, ElementsAre(4, 1));
  ASSERT_EQ(windows.of(0, 0).size(), 2u);
  EXPECT_EQ(windows.of(0, 0)[0].expert, ExpertId(1));
  EXPECT_EQ(windows.of(0, 0)[1].expert, ExpertId(3));
  EXPECT_EQ(windows.of(0, 0)[1].entry_count, 3u);
}

TEST(CutWindowsTest, AWindowIsOfOneText) {
  RouteTrace trace = Plain({0, 1, 2, 3, 4, 5, 6});
  trace.text_begins = {0, 3};
  EXPECT_THAT(CutWindows(trace, 2).token_counts, ElementsAre(2, 1, 2, 2));
  EXPECT_THAT(CutWindows(trace, 2, 4).token_counts, ElementsAre(2, 1, 1));
}

TEST(ReplayTest, CountsHitsEntriesAndUploads) {
  // Windows {0} {1} {0} {2} {0}, two slots, LRU: misses 0, 1 and 2; hits 0 twice.
  const TraceWindows windows = CutWindows(Plain({0, 1, 0, 2, 0}), 1);
  const ReplayResult result = Replay(windows, Maker("lru"), {.slot_count = 2, .warm_up_share = 0});
  EXPECT_EQ(result.window_count, 5u);
  EXPECT_EQ(result.total().distinct, 5u);
  EXPECT_EQ(result.total().distinct_hits, 2u);
  EXPECT_EQ(result.total().uploads, 3u);
  EXPECT_DOUBLE_EQ(result.hit_rate(), 0.4);
  EXPECT_DOUBLE_EQ(result.uploads_per_layer(), 0.6);
}

TEST(ReplayTest, EntriesAreWeighted) {
  const TraceWindows windows = CutWindows(Plain({0, 0, 0, 1}), 2);  // {0 x 2} {0, 1}
  const ReplayResult result =
      Replay(windows, Maker("lru"), {.slot_count = 4, .warm_up_share = 0.5});
  EXPECT_DOUBLE_EQ(result.hit_rate(), 0.5);
  EXPECT_EQ(result.total().entries, 2u);
  EXPECT_EQ(result.total().entry_hits, 1u);
}

TEST(ReplayTest, SwapsAreBoundedPerLayerAndWindow) {
  const TraceWindows windows = CutWindows(MakeRandomTrace({.tokens = 200}, 3), 4);
  for (const PolicyEntry& entry : PolicyTable()) {
    const ReplayResult result =
        Replay(windows, Maker(entry.name),
               {.slot_count = 8, .warm_up_share = 0, .swaps_per_layer_max = 1});
    EXPECT_LE(result.total().uploads, windows.window_count() * windows.layer_count) << entry.name;
  }
}

TEST(ReplayTest, AProfileFillsThePoolBeforeTheFirstWindow) {
  const TraceWindows windows = CutWindows(Plain({5, 5, 6, 5, 6, 6}), 1);
  const ReplayResult result =
      Replay(windows, Maker("static"), {.slot_count = 1, .warm_up_share = 0, .profile_share = 0.5});
  EXPECT_EQ(result.total().distinct_hits, 3u);  // 5 was the hottest of the first half
  EXPECT_EQ(result.total().uploads, 0u);
}

TEST(ReplayTest, ALayerOfItsOwnIsNotDisturbedByOthers) {
  // Layer 0 always wants expert 0; layer 1 another one every time.
  RouteTrace trace{.identity = {.layer_count = 2, .expert_count = 64, .ranks = 1},
                   .text_begins = {0}};
  for (uint16_t t = 0; t < 64; ++t) {
    trace.routes.push_back(0);
    trace.routes.push_back(t);
  }
  const TraceWindows windows = CutWindows(trace, 1);
  const ReplayResult own =
      Replay(windows, Maker("lru"), {.slot_count = 2, .pooled = false, .warm_up_share = 0});
  EXPECT_EQ(own.layers[0].distinct_hits, 63u);
  EXPECT_EQ(own.layers[1].distinct_hits, 0u);
  const ReplayResult pooled = Replay(windows, Maker("lru"), {.slot_count = 2, .warm_up_share = 0});
  EXPECT_EQ(pooled.layers[0].distinct_hits, 63u);
}

TEST(ReplayTest, NoPolicyBeatsBelady) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const RouteTrace trace = MakeRandomTrace({.layers = 3, .tokens = 150}, seed);
    for (const uint32_t rows : {1u, 4u}) {
      const TraceWindows windows = CutWindows(trace, rows);
      for (const uint64_t slots : {3u, 9u, 24u}) {
        for (const bool pooled : {true, false}) {
          for (const double warm_up : {0.0, 0.3}) {
            const ReplayOptions options{.slot_count = slots,
                                        .pooled = pooled,
                                        .warm_up_share = warm_up,
                                        .profile_share = warm_up};
            const uint64_t best = ReplayBelady(windows, options).total().distinct_hits;
            EXPECT_LE(ReplayStaticOracle(windows, options).total().distinct_hits,
                      warm_up > 0 ? best : UINT64_MAX);  // from cold it is not warm
            for (const PolicyEntry& entry : PolicyTable()) {
              const ReplayResult result = Replay(windows, Maker(entry.name), options);
              EXPECT_LE(result.total().distinct_hits, best) << entry.name;
            }
          }
        }
      }
    }
  }
}

TEST(ReplayTest, OraclesCountTheSameUsesAsPolicies) {
  const TraceWindows windows = CutWindows(MakeRandomTrace({}, 4), 2);
  const ReplayOptions options{.slot_count = 10};
  const ReplayCounts lru = Replay(windows, Maker("lru"), options).total();
  for (const ReplayResult& result :
       {ReplayBelady(windows, options), ReplayStaticOracle(windows, options)}) {
    EXPECT_EQ(result.total().distinct, lru.distinct);
    EXPECT_EQ(result.total().entries, lru.entries);
  }
}

TEST(CheckReplayTest, OptionsOutOfRangeAreNamed) {
  const TraceWindows windows = CutWindows(MakeRandomTrace({}, 0), 1);
  const auto message = [&](const ReplayOptions& options) {
    return std::string(CheckReplay(windows, options).message());
  };
  EXPECT_EQ(message({.slot_count = 32}), "");
  EXPECT_THAT(message({.slot_count = 33}), HasSubstr("slots: found 33, expected at most 32"));
  EXPECT_THAT(message({.slot_count = 1, .pooled = false}), HasSubstr("at least one per layer, 2"));
  EXPECT_THAT(message({.slot_count = 5, .layer_slots_min = 3}),
              HasSubstr("layer_slots_min: found 3, expected at most 2"));
  EXPECT_THAT(message({.slot_count = 5, .warm_up_share = 1}), HasSubstr("warm_up: found 1"));
  EXPECT_FALSE(CheckReplay(CutWindows(Plain({}), 1), {.slot_count = 1}).ok());
}

TEST(GapClosedTest, IsAShareOfTheGap) {
  EXPECT_DOUBLE_EQ(GapClosed(0.5, 0.625, 0.75), 0.5);
  EXPECT_LT(GapClosed(0.8, 0.7, 0.9), 0);
  EXPECT_EQ(GapClosed(0.8, 0.8, 0.8), 0);
}

TEST(ProfileSightingsTest, AnExpertOfEveryTokenIsWorthTheConstant) {
  const std::vector<uint64_t> counts = {100, 50, 0};
  EXPECT_THAT(ProfileSightings(counts, 100),
              ElementsAre(kProfileSightings, kProfileSightings / 2, 0));
  EXPECT_THAT(ProfileSightings(counts, 0), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace hearth
