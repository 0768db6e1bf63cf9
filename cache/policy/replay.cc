#include "cache/policy/replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "cache/policy/belady.h"
#include "cache/policy/profile_seed.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

// The layers of each pool, and its slots.
struct Pool {
  std::vector<LayerId> layers;
  uint64_t slot_count = 0;
};

std::vector<Pool> PoolsOf(const TraceWindows& windows, const ReplayOptions& options) {
  std::vector<Pool> pools(options.pooled ? 1 : windows.layer_count);
  for (uint32_t l = 0; l < windows.layer_count; ++l) {
    pools[options.pooled ? 0 : l].layers.emplace_back(l);
  }
  for (Pool& pool : pools) pool.slot_count = options.slot_count / pools.size();
  return pools;
}

uint64_t ShareOf(const TraceWindows& windows, double share) {
  return static_cast<uint64_t>(share * static_cast<double>(windows.window_count()));
}

// Gives a policy what the first windows say of its layers, and fills it.
void SeedAndFill(const TraceWindows& windows, const Pool& pool, const PoolShape& shape,
                 double profile_share, ResidencyPolicy& policy) {
  const uint64_t window_count = ShareOf(windows, profile_share);
  const uint64_t tokens = std::accumulate(
      windows.token_counts.begin(),
      windows.token_counts.begin() + static_cast<ptrdiff_t>(window_count), uint64_t{0});
  for (const LayerId layer : pool.layers) {
    std::vector<uint64_t> counts(windows.expert_count);
    for (uint64_t w = 0; w < window_count; ++w) {
      for (const ExpertSighting& s : windows.of(w, layer.value)) {
        counts[s.expert.value] += s.entry_count;
      }
    }
    policy.Seed(layer, ProfileSightings(counts, tokens));
  }
  std::vector<ExpertKey> hottest(pool.slot_count);
  hottest.resize(HottestExperts(policy, shape, hottest));
  for (const ExpertKey key : hottest) {
    policy.Begin({.in = key, .out = ExpertKey()});
    policy.Land({.in = key, .out = ExpertKey()});
  }
}

void ReplayPool(const TraceWindows& windows, const Pool& pool, const PolicyMaker& maker,
                const ReplayOptions& options, ReplayResult& result) {
  const PoolShape shape{.layer_count = windows.layer_count,
                        .expert_count = windows.expert_count,
                        .layers = pool.layers,
                        .slot_count = static_cast<uint32_t>(pool.slot_count),
                        .layer_slots_min = options.pooled ? options.layer_slots_min : 0};
  const std::unique_ptr<ResidencyPolicy> policy = maker(shape);
  if (options.profile_share > 0) {
    SeedAndFill(windows, pool, shape, options.profile_share, *policy);
  }
  const uint32_t swaps_max =
      options.swaps_per_layer_max == 0 ? windows.expert_count : options.swaps_per_layer_max;
  std::vector<Swap> swaps(swaps_max);
  const uint64_t counted_from = ShareOf(windows, options.warm_up_share);
  for (uint64_t w = 0; w < windows.window_count(); ++w) {
    for (const LayerId layer : pool.layers) {
      const LayerTraffic traffic = windows.traffic(w, layer.value);
      ReplayCounts counts{.distinct = traffic.experts.size()};
      for (const ExpertSighting& s : traffic.experts) {
        const bool hit = policy->resident({layer, s.expert});
        counts.distinct_hits += hit ? 1 : 0;
        counts.entries += s.entry_count;
        counts.entry_hits += hit ? s.entry_count : 0;
      }
      policy->Observe(traffic);
      counts.uploads = policy->Propose(swaps);
      for (size_t i = 0; i < counts.uploads; ++i) policy->Begin(swaps[i]);
      for (size_t i = 0; i < counts.uploads; ++i) policy->Land(swaps[i]);
      if (w >= counted_from) result.layers[layer.value] += counts;
    }
    policy->EndWindow(windows.token_counts[w]);
  }
}

// The uses of a pool's experts in the windows from `first` on: a step is one layer of one window,
// an item is an expert of a layer, numbered within the pool.
StepSequence StepsOf(const TraceWindows& windows, const Pool& pool, uint64_t first) {
  StepSequence steps{.item_count = static_cast<uint32_t>(pool.layers.size()) * windows.expert_count,
                     .begins = {0}};
  for (uint64_t w = first; w < windows.window_count(); ++w) {
    for (size_t row = 0; row < pool.layers.size(); ++row) {
      for (const ExpertSighting& s : windows.of(w, pool.layers[row].value)) {
        steps.items.push_back(static_cast<uint32_t>(row) * windows.expert_count + s.expert.value);
      }
      steps.begins.push_back(steps.items.size());
    }
  }
  return steps;
}

// Counts a pool's uses as hits where `hits` (in the order of StepsOf) says so.
void CountUses(const TraceWindows& windows, const Pool& pool, uint64_t first,
               const std::vector<uint8_t>& hits, ReplayResult& result) {
  size_t at = 0;
  for (uint64_t w = first; w < windows.window_count(); ++w) {
    for (const LayerId layer : pool.layers) {
      ReplayCounts& counts = result.layers[layer.value];
      for (const ExpertSighting& s : windows.of(w, layer.value)) {
        const bool hit = hits[at++] != 0;
        counts += {.distinct = 1,
                   .distinct_hits = hit ? 1u : 0u,
                   .entries = s.entry_count,
                   .entry_hits = hit ? s.entry_count : 0};
      }
    }
  }
}

ReplayResult EmptyResult(const TraceWindows& windows, const ReplayOptions& options) {
  const uint64_t warm_up = ShareOf(windows, options.warm_up_share);
  return {.window_count = windows.window_count() - warm_up,
          .layers = std::vector<ReplayCounts>(windows.layer_count)};
}

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

ReplayCounts& ReplayCounts::operator+=(const ReplayCounts& other) {
  distinct += other.distinct;
  distinct_hits += other.distinct_hits;
  entries += other.entries;
  entry_hits += other.entry_hits;
  uploads += other.uploads;
  return *this;
}

ReplayCounts ReplayResult::total() const {
  ReplayCounts sum;
  for (const ReplayCounts& layer : layers) sum += layer;
  return sum;
}

double ReplayResult::hit_rate() const {
  const ReplayCounts sum = total();
  return Ratio(sum.distinct_hits, sum.distinct);
}

double ReplayResult::entry_hit_rate() const {
  const ReplayCounts sum = total();
  return Ratio(sum.entry_hits, sum.entries);
}

double ReplayResult::layer_mean_hit_rate() const {
  double sum = 0;
  for (const ReplayCounts& layer : layers) sum += Ratio(layer.distinct_hits, layer.distinct);
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

double ReplayResult::uploads_per_layer() const {
  return Ratio(total().uploads, window_count * layers.size());
}

absl::Status CheckReplay(const TraceWindows& windows, const ReplayOptions& options) {
  const uint64_t experts = uint64_t{windows.layer_count} * windows.expert_count;
  if (options.slot_count > experts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slots: found ", options.slot_count, ", expected at most ", experts, ", all experts"));
  }
  if (!options.pooled && options.slot_count < windows.layer_count) {
    return absl::InvalidArgumentError(absl::StrCat("slots: found ", options.slot_count,
                                                   ", expected at least one per layer, ",
                                                   windows.layer_count));
  }
  if (uint64_t{options.layer_slots_min} * windows.layer_count > options.slot_count) {
    return absl::InvalidArgumentError(absl::StrCat("layer_slots_min: found ",
                                                   options.layer_slots_min, ", expected at most ",
                                                   options.slot_count / windows.layer_count));
  }
  for (const double share : {options.warm_up_share, options.profile_share}) {
    if (share >= 0 && share < 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("warm_up: found ", share, ", expected a share of at least 0 and below 1"));
  }
  if (windows.window_count() == 0) {
    return absl::InvalidArgumentError("trace: found no tokens, expected at least one");
  }
  return absl::OkStatus();
}

ReplayResult Replay(const TraceWindows& windows, const PolicyMaker& maker,
                    const ReplayOptions& options) {
  ReplayResult result = EmptyResult(windows, options);
  for (const Pool& pool : PoolsOf(windows, options)) {
    ReplayPool(windows, pool, maker, options, result);
  }
  return result;
}

ReplayResult ReplayBelady(const TraceWindows& windows, const ReplayOptions& options) {
  ReplayResult result = EmptyResult(windows, options);
  const uint64_t first = ShareOf(windows, options.warm_up_share);
  // Who was warmed up or filled may hold anything when counting begins, so the oracle may as well.
  const bool begins_empty = first == 0 && options.profile_share == 0;
  for (const Pool& pool : PoolsOf(windows, options)) {
    const BeladyResult best = Belady(StepsOf(windows, pool, first), pool.slot_count,
                                     begins_empty ? BeladyStart::kEmpty : BeladyStart::kFilled);
    CountUses(windows, pool, first, best.hits, result);
    // Which layer an upload was for is not told: the first one of the pool carries them.
    result.layers[pool.layers[0].value].uploads += best.fill_count;
  }
  return result;
}

ReplayResult ReplayStaticOracle(const TraceWindows& windows, const ReplayOptions& options) {
  ReplayResult result = EmptyResult(windows, options);
  const uint64_t first = ShareOf(windows, options.warm_up_share);
  for (const Pool& pool : PoolsOf(windows, options)) {
    const StepSequence steps = StepsOf(windows, pool, first);
    std::vector<uint64_t> uses(steps.item_count);
    for (const uint32_t item : steps.items) ++uses[item];
    std::vector<uint32_t> order(steps.item_count);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](uint32_t i) { return uses[i]; });
    std::vector<uint8_t> kept(steps.item_count);
    for (uint64_t i = 0; i < std::min<uint64_t>(pool.slot_count, order.size()); ++i) {
      kept[order[i]] = 1;
    }
    std::vector<uint8_t> hits;
    hits.reserve(steps.items.size());
    for (const uint32_t item : steps.items) hits.push_back(kept[item]);
    CountUses(windows, pool, first, hits, result);
  }
  return result;
}

double GapClosed(double floor, double rate, double ceiling) {
  return ceiling > floor ? (rate - floor) / (ceiling - floor) : 0;
}

}  // namespace hearth
