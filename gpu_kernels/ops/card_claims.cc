#include "gpu_kernels/ops/card_claims.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {
namespace {

bool InSlot(uint64_t entry) { return entry != 0 && (entry & kFromAfar) == 0; }

}  // namespace

ClaimFinder::ClaimFinder(uint32_t expert_count, uint32_t entries_max)
    : seen_(expert_count), ordinal_(expert_count), claims_(entries_max) {}

void ClaimFinder::BeginWindow(const StreamRule& rule) {
  rule_ = rule;
  streams_left_ = rule.experts_max;
}

std::span<const EntryClaim> ClaimFinder::Find(std::span<const uint64_t> table,
                                              std::span<const uint32_t> expert) {
  HEARTH_CHECK(table.size() == seen_.size() && expert.size() <= claims_.size());
  if (++layer_count_ == 0) {  // wrapped around
    std::ranges::fill(seen_, 0u);
    layer_count_ = 1;
  }
  uint32_t misses = 0;
  uint32_t readable = 0;
  for (const uint32_t e : expert) {
    HEARTH_CHECK(e < seen_.size());
    if (seen_[e] == layer_count_) continue;
    seen_[e] = layer_count_;
    if (InSlot(table[e])) continue;
    ++misses;
    if (table[e] != 0) ordinal_[e] = readable++;
  }
  const uint32_t wanted = rule_.count[std::min(misses, StreamRule::kMissesMax)];
  const uint32_t streamed = std::min({wanted, streams_left_, readable});
  streams_left_ -= streamed;
  all_claimed_ = true;
  for (size_t i = 0; i < expert.size(); ++i) {
    const uint64_t entry = table[expert[i]];
    const bool streams = entry != 0 && ordinal_[expert[i]] < streamed;
    claims_[i] = InSlot(entry) ? EntryClaim::kSlot
                 : streams     ? EntryClaim::kStreamed
                               : EntryClaim::kHost;
    all_claimed_ &= claims_[i] != EntryClaim::kHost;
  }
  return std::span(claims_).first(expert.size());
}

}  // namespace hearth
