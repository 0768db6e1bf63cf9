// Made-up routes have the locality that they were fitted to.
#include "cache/policy/synthetic_trace.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "cache/policy/policy_table.h"
#include "cache/policy/replay.h"
#include "cache/policy/trace_windows.h"

namespace hearth {
namespace {

double LruHitRate(const RouteTrace& trace, uint64_t slots, double warm_up, uint64_t tokens) {
  const auto make = [](const PoolShape& shape) { return MakePolicy(*FindPolicy("lru"), shape); };
  return Replay(CutWindows(trace, 1, tokens), make,
                {.slot_count = slots * trace.identity.layer_count,
                 .pooled = false,
                 .warm_up_share = warm_up})
      .hit_rate();
}

TEST(SyntheticTraceTest, TheSameNumbersMakeTheSameTrace) {
  const SyntheticTraceShape shape{.layer_count = 2, .token_count = 50, .seed = 3};
  const RouteTrace once = MakeSyntheticTrace(StickyRouting(), shape);
  EXPECT_EQ(once.routes, MakeSyntheticTrace(StickyRouting(), shape).routes);
  EXPECT_NE(
      once.routes,
      MakeSyntheticTrace(StickyRouting(), {.layer_count = 2, .token_count = 50, .seed = 4}).routes);
}

TEST(SyntheticTraceTest, IsATraceThatReadsBack) {
  SyntheticRouting routing = StickyRouting();
  routing.document_tokens = 20;
  const RouteTrace trace = MakeSyntheticTrace(
      routing, {.layer_count = 3, .expert_count = 64, .ranks = 6, .token_count = 45});
  EXPECT_EQ(trace.text_begins, (std::vector<uint64_t>{0, 20, 40}));
  const auto read = RouteTrace::Parse(trace.Serialise(), "t");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->routes, trace.routes);
}

TEST(SyntheticTraceTest, DiffuseRoutesMissLikeAColdText) {
  const RouteTrace trace =
      MakeSyntheticTrace(DiffuseRouting(), {.layer_count = 4, .token_count = 300});
  EXPECT_NEAR(LruHitRate(trace, 93, 0, 300), 0.40, 0.05);
  EXPECT_NEAR(LruHitRate(trace, 186, 0, 300), 0.63, 0.05);
  EXPECT_NEAR(LruHitRate(trace, 512, 0, 300), 0.85, 0.05);
}

TEST(SyntheticTraceTest, StickyRoutesAreWhereLruIsGood) {
  const RouteTrace trace =
      MakeSyntheticTrace(StickyRouting(), {.layer_count = 2, .token_count = 2400});
  EXPECT_NEAR(LruHitRate(trace, 64, 0.25, 2400), 0.65, 0.05);
  EXPECT_NEAR(LruHitRate(trace, 128, 0.25, 2400), 0.76, 0.05);
}

}  // namespace
}  // namespace hearth
