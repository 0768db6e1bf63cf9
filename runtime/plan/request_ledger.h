// The account of each request of a pass: what the rows of that request alone asked for, and who
// served it. Pure; allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/plan/ledger.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

struct RequestRows {  // rows [begin, end) of a pass
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct RequestServed {
  uint64_t distinct = 0;  // experts that this request used: one of two requests counts for both
  uint64_t entries = 0;   // each counts for one request; over the requests they add up to the pass
  bool operator==(const RequestServed&) const = default;
};

struct RequestCounts {
  std::array<RequestServed, kServiceCount> services{};  // by Service
  RequestServed& of(Service service) { return services[static_cast<uint32_t>(service)]; }
  const RequestServed& of(Service service) const {
    return services[static_cast<uint32_t>(service)];
  }
  RequestServed total() const;
  bool operator==(const RequestCounts&) const = default;
};

// Adds one layer of one pass: `services` are those that did compute each of plan.experts, by index,
// or empty for the ones planned. Requests are by ascending rows and do not overlap; rows of none
// count for none. `counts` is as long as `requests`.
void AddRequestCounts(const WindowPlan& plan, std::span<const Service> services,
                      std::span<const RequestRows> requests, std::span<RequestCounts> counts);

}  // namespace hearth
