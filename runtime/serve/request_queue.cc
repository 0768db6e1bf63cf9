#include "runtime/serve/request_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hearth {

int64_t AgedPriority(Priority priority, int64_t waited_ns, int64_t aging_ns) {
  return static_cast<int64_t>(priority) + std::max<int64_t>(waited_ns, 0) / aging_ns;
}

RequestQueue::RequestQueue(uint32_t count_max, int64_t aging_ns)
    : count_max_(count_max), aging_ns_(aging_ns) {
  requests_.reserve(count_max);
}

void RequestQueue::Push(std::unique_ptr<ServedRequest> request) {
  HEARTH_CHECK(!full());
  requests_.push_back(std::move(request));
}

const ServedRequest* RequestQueue::Next(int64_t now_ns) const {
  const ServedRequest* best = nullptr;
  int64_t best_priority = 0;
  for (const auto& request : requests_) {
    const int64_t priority =
        AgedPriority(request->request().priority, now_ns - request->submitted_ns(), aging_ns_);
    if (best != nullptr && priority <= best_priority) continue;
    best = request.get();
    best_priority = priority;
  }
  return best;
}

std::unique_ptr<ServedRequest> RequestQueue::Take(const ServedRequest* request) {
  const auto at = std::find_if(requests_.begin(), requests_.end(),
                               [&](const auto& r) { return r.get() == request; });
  HEARTH_CHECK(at != requests_.end());
  std::unique_ptr<ServedRequest> taken = std::move(*at);
  requests_.erase(at);
  return taken;
}

}  // namespace hearth
