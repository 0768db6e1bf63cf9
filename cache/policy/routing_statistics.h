// What counts and traces say about how well experts can be cached: concentration, how lists carry
// over between texts, distinct experts of a window. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/policy/route_trace.h"
#include "cache/policy/routing_profile.h"

namespace hearth {

// The experts of some counts from the hottest down (equals by index): a list that static residency
// would keep the head of.
class HotOrder {
 public:
  explicit HotOrder(std::span<const uint64_t> counts);

  // How much of `traffic` (one count for each expert) falls on the list's first `share` of experts,
  // 0 to 1: the hit rate, per route entry, of keeping those. The last expert counts in part where
  // the share is not a whole number of them. 0 when there is no traffic.
  double Traffic(std::span<const uint64_t> traffic, double share) const;
  // The same at shares 0, 1 / steps, ..., 1: (steps + 1) values.
  std::vector<double> Curve(std::span<const uint64_t> traffic, uint32_t steps) const;

 private:
  std::vector<uint32_t> order_;
};

// The trunk's part of some counts, all layers in one list: what a pool across layers sees.
std::span<const uint64_t> TrunkCounts(const RoutingIdentity& identity,
                                      std::span<const uint64_t> counts);

// One layer's part.
std::span<const uint64_t> LayerCounts(const RoutingIdentity& identity,
                                      std::span<const uint64_t> counts, uint32_t layer);

// How much of their choices two domains share: 1 - half the sum of |p - q|, on average over the
// trunk's layers; 1 for the same distribution, 0 for disjoint experts.
double OverlapOf(const RoutingIdentity& identity, std::span<const uint64_t> a,
                 std::span<const uint64_t> b);

// Distinct experts in windows of `tokens` successive tokens of a text that do not overlap, on
// average: for each trunk layer. Empty when no text is as long.
std::vector<double> DistinctByLayer(const RouteTrace& trace, uint32_t tokens);

// The same if every token chose its `ranks` of `expert_count` evenly and on its own.
double DistinctIfEven(uint32_t expert_count, uint32_t ranks, uint32_t tokens);

}  // namespace hearth
