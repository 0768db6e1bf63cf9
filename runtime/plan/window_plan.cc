#include "runtime/plan/window_plan.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

void WindowPlan::Reserve(uint32_t rows_max, uint32_t ranks, uint32_t expert_count) {
  const size_t entry_count = size_t{rows_max} * ranks;
  entries.reserve(entry_count);
  experts.reserve(std::min<size_t>(entry_count, expert_count));
  counts.reserve(expert_count);
}

void GroupRoutes(const RouteInput& input, WindowPlan& plan) {
  const size_t entry_count = size_t{input.rows} * input.ranks;
  HEARTH_CHECK(input.expert.size() == entry_count);
  plan.experts.clear();
  plan.entries.resize(entry_count);
  plan.counts.assign(input.expert_count, 0);
  for (const uint32_t expert : input.expert) {
    HEARTH_CHECK(expert < input.expert_count);
    ++plan.counts[expert];
  }
  uint32_t first = 0;
  for (uint32_t e = 0; e < plan.counts.size(); ++e) {
    const uint32_t count = plan.counts[e];
    if (count == 0) continue;
    plan.experts.push_back({.expert = ExpertId(e),
                            .service = Service::kCpu,
                            .entry_begin = first,
                            .entry_count = count});
    plan.counts[e] = first;  // from here on: where the next entry of this expert goes
    first += count;
  }
  const uint32_t* expert = input.expert.data();
  for (uint32_t row = 0; row < input.rows; ++row) {
    for (uint32_t rank = 0; rank < input.ranks; ++rank) {
      plan.entries[plan.counts[*expert++]++] = {.row = row, .rank = rank};
    }
  }
}

}  // namespace hearth
