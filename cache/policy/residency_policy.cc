#include "cache/policy/residency_policy.h"

#include <algorithm>

namespace hearth {

size_t HottestExperts(const ResidencyPolicy& policy, const PoolShape& shape,
                      std::span<ExpertKey> out) {
  if (out.empty()) return 0;
  // `out` is a heap whose top is the coldest so far.
  const auto hotter = [&](ExpertKey a, ExpertKey b) {
    const float heat_a = policy.Heat(a);
    const float heat_b = policy.Heat(b);
    return heat_a != heat_b ? heat_a > heat_b : a < b;
  };
  size_t count = 0;
  for (const LayerId layer : shape.layers) {
    for (uint32_t e = 0; e < shape.expert_count; ++e) {
      const ExpertKey key{layer, ExpertId(e)};
      if (count == out.size()) {
        if (!hotter(key, out.front())) continue;
        std::ranges::pop_heap(out, hotter);
        out.back() = key;
      } else {
        out[count++] = key;
      }
      std::ranges::push_heap(out.first(count), hotter);
    }
  }
  std::ranges::sort_heap(out.first(count), hotter);
  return count;
}

}  // namespace hearth
