// What a profile and a trace say, worked out once for the text, the JSON and the page of
// `hearth profile` and `hearth profile report`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/policy/replay.h"
#include "cache/policy/route_trace.h"
#include "cache/policy/routing_profile.h"
#include "runtime/base/worker_team.h"

namespace hearth::cli {

inline constexpr std::array<double, 4> kHotShares = {0.10, 0.18, 0.34, 0.40};
inline constexpr uint32_t kCurveSteps = 50;
inline constexpr uint32_t kFactWindowMax = 8;
inline constexpr double kCarryShare = 0.40;     // of the experts that a list keeps
inline constexpr size_t kTableDomainsMax = 24;  // the largest; more make no readable table

struct DomainFacts {
  std::string name;
  uint64_t token_count = 0;
  // Of the trunk's route entries, the share that its hottest experts have: all layers in one list.
  std::array<double, kHotShares.size()> hot_traffic{};
  std::vector<double> curve;  // the same at 0, 1 / kCurveSteps, ..., 1
};

struct DistinctFacts {  // in windows of so many tokens; experts of a layer
  uint32_t window_tokens = 0;
  double mean = 0;
  double lowest_layer = 0;
  double highest_layer = 0;
  double if_even = 0;
};

struct HitCurve {
  std::string policy;
  std::vector<double> hit_rate;        // per distinct expert, for each of ReplayFacts::slot_counts
  std::vector<double> entry_hit_rate;  // per route entry
};

struct ReplayFacts {  // at one window
  uint32_t window_tokens = 0;
  std::vector<double> slot_shares;
  std::vector<uint64_t> slot_counts;
  // static (the best list in hindsight), lru, two-scale, the default policy where that is another,
  // belady
  std::vector<HitCurve> curves;
  const HitCurve* Find(std::string_view policy) const;  // null when there is none
};

struct TraceFacts {
  uint64_t token_count = 0;
  uint64_t replayed_token_count = 0;
  uint64_t text_count = 0;
  std::string default_policy;
  std::vector<DistinctFacts> distinct;
  std::vector<ReplayFacts> replays;
};

struct ProfileFacts {
  RoutingIdentity identity;
  DomainFacts all;
  std::vector<DomainFacts> domains;  // as in the profile
  // By layer, the MTP layer last: traffic of the layer's own hottest 10% and 40%; NaN without any.
  std::vector<double> layer_hot10;
  std::vector<double> layer_hot40;
  // Of the largest domains, at most kTableDomainsMax, in the profile's order: (row, column).
  std::vector<size_t> table;                 // indices into domains
  std::vector<std::vector<double>> overlap;  // OverlapOf
  std::vector<std::vector<double>> carry;    // the row's hottest 40% on the column's traffic
  std::optional<TraceFacts> trace;
};

DomainFacts FactsOf(const RoutingIdentity& identity, std::string_view name, uint64_t token_count,
                    std::span<const uint64_t> counts);
std::vector<DomainFacts> DomainFactsOf(const RoutingProfile& profile);
ProfileFacts FactsOf(const RoutingProfile& profile);

// Replays the beginning of every text, about `tokens_max` tokens in all, in proportion to the
// texts' lengths. InvalidArgument when there is nothing to replay. `on_done` is told how many of
// the replays are done, by one thread.
absl::StatusOr<TraceFacts> FactsOf(const RouteTrace& trace, uint64_t tokens_max, WorkerTeam& team,
                                   const std::function<void(uint64_t done, uint64_t of)>& on_done);

nlohmann::ordered_json DomainJson(const DomainFacts& domain);
nlohmann::ordered_json FactsJson(const ProfileFacts& facts);
void PrintFacts(const ProfileFacts& facts, std::ostream& out);

// The columns that names take in a table, and a name filled up to them; names are UTF-8 and count
// by code point.
size_t NameColumns(std::span<const DomainFacts> domains);
std::string PaddedName(std::string_view name, size_t columns);

}  // namespace hearth::cli
