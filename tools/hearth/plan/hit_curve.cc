// Sorted counts, added up.
#include "tools/hearth/plan/hit_curve.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace hearth::cli {
namespace {

// Experts by falling count, ties by number.
std::vector<uint32_t> Order(std::span<const uint64_t> counts) {
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  return order;
}

std::vector<double> SharesOf(std::span<const uint64_t> counts, std::span<const uint32_t> order) {
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  std::vector<double> shares = {0};
  uint64_t sum = 0;
  for (const uint32_t expert : order) {
    sum += counts[expert];
    shares.push_back(all == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(all));
  }
  return shares;
}

// The trunk's layers: the MTP layer works for drafts alone.
std::span<const uint64_t> Trunk(const RoutingProfile& profile, std::span<const uint64_t> counts) {
  return counts.first(size_t{profile.identity.layer_count} * profile.identity.expert_count);
}

}  // namespace

HitCurve HitCurve::Even(uint32_t layer_count, uint32_t expert_count) {
  HitCurve curve;
  curve.all_count_ = uint64_t{layer_count} * expert_count;
  return curve;
}

HitCurve HitCurve::Of(const RoutingProfile& profile) {
  HitCurve curve = Even(profile.identity.layer_count, profile.identity.expert_count);
  const std::vector<uint64_t> all = profile.Counts();
  const std::span<const uint64_t> trunk = Trunk(profile, all);
  curve.shares_ = SharesOf(trunk, Order(trunk));
  if (profile.domains.size() < 2) return curve;
  for (const ProfileDomain& domain : profile.domains) {
    const std::span<const uint64_t> own = Trunk(profile, domain.counts);
    std::vector<uint64_t> rest(trunk.begin(), trunk.end());
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= own[i];
    if (std::accumulate(own.begin(), own.end(), uint64_t{0}) == 0) continue;
    curve.others_.push_back(SharesOf(own, Order(rest)));
  }
  return curve;
}

HitRange HitCurve::At(uint64_t held) const {
  held = std::min(held, all_count_);
  if (all_count_ == 0) return {};
  if (shares_.empty()) {
    const double share = static_cast<double>(held) / static_cast<double>(all_count_);
    return {share, share, share};
  }
  HitRange range = {shares_[held], shares_[held], shares_[held]};
  for (const Shares& other : others_) {
    range.low = std::min(range.low, other[held]);
    range.high = std::max(range.high, other[held]);
  }
  // Slots follow the text; what is held for all texts at once is between the two.
  if (!others_.empty()) {
    double sum = 0;
    for (const Shares& other : others_) sum += other[held];
    range.expected = sum / static_cast<double>(others_.size());
  }
  return range;
}

}  // namespace hearth::cli
