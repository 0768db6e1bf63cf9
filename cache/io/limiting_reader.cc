#include "cache/io/limiting_reader.h"

#include <algorithm>
#include <utility>

namespace hearth {
LimitingReader::LimitingReader(std::unique_ptr<Reader> inner, const ReadLimits& limits,
                               Clock& clock)
    : HoldingReader(std::move(inner), limits.in_flight_max, /*landed_min=*/1, clock),
      bytes_per_sec_(limits.bytes_per_sec) {}

void LimitingReader::Plan(Held& held) {
  held.order_key = held.number;  // answered in order of submission
  if (bytes_per_sec_ == 0) return;
  const double read_ns =
      static_cast<double>(held.request.into.size()) * 1e9 / static_cast<double>(bytes_per_sec_);
  free_ns_ = std::max(free_ns_, held.submitted_ns) + static_cast<int64_t>(read_ns);
  held.due_ns = free_ns_;
}

}  // namespace hearth
