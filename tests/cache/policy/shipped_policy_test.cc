// The default policy against LRU, the static oracle and Belady, on made-up routes. On learned ones:
// tests/tools/hearth/replay_test.py.
#include <cstdint>

#include <gtest/gtest.h>

#include "cache/policy/policy_table.h"
#include "cache/policy/replay.h"
#include "cache/policy/residency_policy.h"
#include "cache/policy/route_trace.h"
#include "cache/policy/synthetic_trace.h"
#include "cache/policy/trace_windows.h"

namespace hearth {
namespace {

struct Rates {
  ReplayResult shipped;
  double lru = 0;          // which moves every miss
  double bounded_lru = 0;  // which moves no more than the shipped policy may
  double static_oracle = 0;
};

ReplayResult ReplayNamed(const TraceWindows& windows, const PolicyEntry& entry,
                         ReplayOptions options, uint32_t swaps_per_layer_max) {
  options.swaps_per_layer_max = swaps_per_layer_max;
  const auto make = [&](const PoolShape& shape) { return MakePolicy(entry, shape); };
  return Replay(windows, make, options);
}

Rates Measure(const RouteTrace& trace, uint32_t rows, double share, bool pooled) {
  const TraceWindows windows = CutWindows(trace, rows);
  const PolicyEntry& shipped = *FindPolicy(kDefaultPolicy);
  const PolicyEntry& lru = *FindPolicy("lru");
  const auto layer_slots = static_cast<uint64_t>(share * windows.expert_count);
  const ReplayOptions options{.slot_count = layer_slots * windows.layer_count, .pooled = pooled};
  return {.shipped = ReplayNamed(windows, shipped, options, shipped.swaps_per_layer_max),
          .lru = ReplayNamed(windows, lru, options, 0).hit_rate(),
          .bounded_lru = ReplayNamed(windows, lru, options, shipped.swaps_per_layer_max).hit_rate(),
          .static_oracle = ReplayStaticOracle(windows, options).hit_rate()};
}

TEST(ShippedPolicyTest, IsTheFirstOfTheTable) {
  EXPECT_EQ(PolicyTable().front().name, kDefaultPolicy);
  EXPECT_LE(PolicyTable().front().swaps_per_layer_max, 2u);
}

TEST(ShippedPolicyTest, DiffuseRoutesBeatLruAndTheStaticOracle) {
  const RouteTrace trace =
      MakeSyntheticTrace(DiffuseRouting(), {.layer_count = 2, .token_count = 3000});
  for (const uint32_t rows : {1u, 4u}) {
    for (const double share : {0.18, 0.40}) {
      const Rates rates = Measure(trace, rows, share, /*pooled=*/true);
      EXPECT_GT(rates.shipped.hit_rate(), rates.lru) << rows << " " << share;
      EXPECT_GT(rates.shipped.hit_rate(), rates.static_oracle) << rows << " " << share;
      EXPECT_LE(rates.shipped.uploads_per_layer(), 2);
    }
  }
}

// LRU is at its best here, and pays for it with up to ten uploads per layer and window.
TEST(ShippedPolicyTest, StickyRoutesBeatTheStaticOracleAndAnLruOfTheSameBound) {
  const RouteTrace trace =
      MakeSyntheticTrace(StickyRouting(), {.layer_count = 2, .token_count = 3000});
  for (const uint32_t rows : {1u, 4u}) {
    for (const double share : {0.18, 0.40}) {
      const Rates rates = Measure(trace, rows, share, /*pooled=*/true);
      EXPECT_GT(rates.shipped.hit_rate(), rates.bounded_lru) << rows << " " << share;
      EXPECT_GT(rates.shipped.hit_rate(), rates.static_oracle) << rows << " " << share;
      EXPECT_LE(rates.shipped.uploads_per_layer(), 2);
    }
  }
}

TEST(ShippedPolicyTest, WithoutABoundStickyRoutesAreAsGoodAsLru) {
  const RouteTrace trace =
      MakeSyntheticTrace(StickyRouting(), {.layer_count = 2, .token_count = 4000});
  const TraceWindows windows = CutWindows(trace, 1);
  for (const uint64_t slots : {256u, 408u}) {
    const ReplayOptions options{.slot_count = slots};
    const double shipped = ReplayNamed(windows, *FindPolicy(kDefaultPolicy), options, 0).hit_rate();
    EXPECT_GT(shipped, ReplayNamed(windows, *FindPolicy("lru"), options, 0).hit_rate() - 0.005);
  }
}

}  // namespace
}  // namespace hearth
