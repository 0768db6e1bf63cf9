// Replays a trace through a policy, and through the two oracles that know the trace beforehand: how
// often the experts that a window needs are there, and what moving them costs.
//
// A pool holds the experts of all layers (pooled) or each layer has one of its own. The first
// windows warm the policy up and are not counted. A swap is done the moment it is proposed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/policy/policy_table.h"
#include "cache/policy/residency_policy.h"
#include "cache/policy/trace_windows.h"

namespace hearth {

struct ReplayOptions {
  uint64_t slot_count = 0;  // of all layers
  bool pooled = true;       // false: slot_count / layer_count for each layer
  double warm_up_share = 0.25;
  // A profile of the first windows up to this share fills the pool before the first window; a
  // policy without one begins empty.
  double profile_share = 0;
  uint32_t swaps_per_layer_max = 0;  // 0: every miss
  uint32_t layer_slots_min = 0;      // of a pooled policy
};

struct ReplayCounts {
  uint64_t distinct = 0;  // experts, summed over windows and layers
  uint64_t distinct_hits = 0;
  uint64_t entries = 0;  // route entries
  uint64_t entry_hits = 0;
  uint64_t uploads = 0;  // swaps, and fills of free slots

  ReplayCounts& operator+=(const ReplayCounts& other);
};

struct ReplayResult {
  uint64_t window_count = 0;  // counted ones
  std::vector<ReplayCounts> layers;
  ReplayCounts total() const;
  double hit_rate() const;             // per distinct expert; 0 of nothing
  double entry_hit_rate() const;       // per route entry
  double layer_mean_hit_rate() const;  // every layer counts alike
  double uploads_per_layer() const;    // and window
};

using PolicyMaker = std::function<std::unique_ptr<ResidencyPolicy>(const PoolShape&)>;

// InvalidArgument names the option that is out of range.
absl::Status CheckReplay(const TraceWindows& windows, const ReplayOptions& options);

// Of options that CheckReplay() accepts.
ReplayResult Replay(const TraceWindows& windows, const PolicyMaker& maker,
                    const ReplayOptions& options);
ReplayResult ReplayBelady(const TraceWindows& windows, const ReplayOptions& options);
// The best set that never changes: what the counted windows use most.
ReplayResult ReplayStaticOracle(const TraceWindows& windows, const ReplayOptions& options);

// Of the gap between `floor` and `ceiling`, how much `rate` closes: 1 at the ceiling, 0 at the
// floor, negative below; 0 where there is no gap.
double GapClosed(double floor, double rate, double ceiling);

}  // namespace hearth
