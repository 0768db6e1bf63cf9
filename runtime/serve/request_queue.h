// Requests that wait, in the order in which they are begun: by priority, then by arrival. Waiting
// raises a priority, so that none waits forever. Bounded; as thread-safe as its owner makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/serve/completion.h"
#include "runtime/serve/served_request.h"

namespace hearth {

// `priority` after a wait of `waited_ns`: one step more for every `aging_ns`, which is positive.
int64_t AgedPriority(Priority priority, int64_t waited_ns, int64_t aging_ns);

class RequestQueue {
 public:
  RequestQueue(uint32_t count_max, int64_t aging_ns);

  bool full() const { return requests_.size() == count_max_; }
  uint32_t count() const { return static_cast<uint32_t>(requests_.size()); }
  // By arrival.
  const std::vector<std::unique_ptr<ServedRequest>>& requests() const { return requests_; }

  // REQUIRES !full(). Arrivals are pushed in the order of their submitted_ns().
  void Push(std::unique_ptr<ServedRequest> request);
  // The one to begin next; null when there is none.
  const ServedRequest* Next(int64_t now_ns) const;
  std::unique_ptr<ServedRequest> Take(const ServedRequest* request);  // one of requests()

 private:
  uint32_t count_max_;
  int64_t aging_ns_;
  std::vector<std::unique_ptr<ServedRequest>> requests_;
};

}  // namespace hearth
