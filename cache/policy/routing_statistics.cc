#include "cache/policy/routing_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/check.h"

namespace hearth {
namespace {

uint64_t SumOf(std::span<const uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

HotOrder::HotOrder(std::span<const uint64_t> counts) : order_(counts.size()) {
  std::iota(order_.begin(), order_.end(), 0u);
  std::ranges::stable_sort(order_, [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
}

double HotOrder::Traffic(std::span<const uint64_t> traffic, double share) const {
  HEARTH_CHECK(traffic.size() == order_.size());
  const uint64_t total = SumOf(traffic);
  if (total == 0) return 0;
  const double kept = std::clamp(share, 0.0, 1.0) * static_cast<double>(order_.size());
  const auto whole = static_cast<size_t>(kept);
  double hits = 0;
  for (size_t i = 0; i < whole; ++i) hits += static_cast<double>(traffic[order_[i]]);
  if (whole < order_.size()) {
    hits += (kept - static_cast<double>(whole)) * static_cast<double>(traffic[order_[whole]]);
  }
  return hits / static_cast<double>(total);
}

std::vector<double> HotOrder::Curve(std::span<const uint64_t> traffic, uint32_t steps) const {
  std::vector<double> curve;
  for (uint32_t i = 0; i <= steps; ++i) {
    curve.push_back(Traffic(traffic, static_cast<double>(i) / steps));
  }
  return curve;
}

std::span<const uint64_t> TrunkCounts(const RoutingIdentity& identity,
                                      std::span<const uint64_t> counts) {
  return counts.first(size_t{identity.layer_count} * identity.expert_count);
}

std::span<const uint64_t> LayerCounts(const RoutingIdentity& identity,
                                      std::span<const uint64_t> counts, uint32_t layer) {
  return counts.subspan(size_t{layer} * identity.expert_count, identity.expert_count);
}

double OverlapOf(const RoutingIdentity& identity, std::span<const uint64_t> a,
                 std::span<const uint64_t> b) {
  double sum = 0;
  for (uint32_t layer = 0; layer < identity.layer_count; ++layer) {
    const std::span<const uint64_t> p = LayerCounts(identity, a, layer);
    const std::span<const uint64_t> q = LayerCounts(identity, b, layer);
    const auto p_sum = static_cast<double>(SumOf(p));
    const auto q_sum = static_cast<double>(SumOf(q));
    if (p_sum == 0 || q_sum == 0) continue;
    for (size_t e = 0; e < p.size(); ++e) {
      sum += std::min(static_cast<double>(p[e]) / p_sum, static_cast<double>(q[e]) / q_sum);
    }
  }
  return sum / identity.layer_count;
}

std::vector<double> DistinctByLayer(const RouteTrace& trace, uint32_t tokens) {
  const RoutingIdentity& id = trace.identity;
  std::vector<uint64_t> sums(id.layer_count);
  std::vector<uint64_t> seen(id.expert_count);  // the number of the window that saw it last
  uint64_t window_count = 0;
  uint64_t window_layer = 0;
  for (size_t text = 0; text < trace.text_begins.size(); ++text) {
    const uint64_t end =
        text + 1 < trace.text_begins.size() ? trace.text_begins[text + 1] : trace.token_count();
    for (uint64_t begin = trace.text_begins[text]; begin + tokens <= end; begin += tokens) {
      ++window_count;
      for (uint32_t layer = 0; layer < id.layer_count; ++layer) {
        ++window_layer;
        for (uint64_t token = begin; token < begin + tokens; ++token) {
          for (const uint16_t expert : trace.of(token, layer)) {
            sums[layer] += seen[expert] != window_layer;
            seen[expert] = window_layer;
          }
        }
      }
    }
  }
  std::vector<double> means;
  if (window_count == 0) return means;
  for (const uint64_t sum : sums) {
    means.push_back(static_cast<double>(sum) / static_cast<double>(window_count));
  }
  return means;
}

double DistinctIfEven(uint32_t expert_count, uint32_t ranks, uint32_t tokens) {
  const double unseen = std::pow(1.0 - static_cast<double>(ranks) / expert_count, tokens);
  return expert_count * (1.0 - unseen);
}

}  // namespace hearth
