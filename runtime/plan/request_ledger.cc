#include "runtime/plan/request_ledger.h"

#include "runtime/base/check.h"

namespace hearth {

RequestServed RequestCounts::total() const {
  RequestServed sum;
  for (const RequestServed& s : services) {
    sum.distinct += s.distinct;
    sum.entries += s.entries;
  }
  return sum;
}

void AddRequestCounts(const WindowPlan& plan, std::span<const Service> services,
                      std::span<const RequestRows> requests, std::span<RequestCounts> counts) {
  HEARTH_CHECK(services.empty() || services.size() == plan.experts.size());
  HEARTH_CHECK(counts.size() == requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    HEARTH_CHECK(requests[r].begin <= requests[r].end);
    HEARTH_CHECK(r == 0 || requests[r - 1].end <= requests[r].begin);
  }
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    const PlannedExpert& expert = plan.experts[i];
    const Service service = services.empty() ? expert.service : services[i];
    size_t r = 0;
    size_t counted = requests.size();  // the request that has this expert already
    for (uint32_t e = 0; e < expert.entry_count; ++e) {
      const uint32_t row = plan.entries[expert.entry_begin + e].row;  // ascending
      while (r < requests.size() && requests[r].end <= row) ++r;
      if (r == requests.size()) break;
      if (row < requests[r].begin) continue;
      RequestServed& served = counts[r].of(service);
      if (counted != r) ++served.distinct;
      counted = r;
      ++served.entries;
    }
  }
}

}  // namespace hearth
