// Recorded traces in files: policy code does no I/O.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/policy/route_trace.h"

namespace hearth {

inline constexpr uint64_t kTraceBytesMax = uint64_t{4} << 30;

// Errors name the path; see RouteTrace::Parse for what is refused.
absl::StatusOr<RouteTrace> ReadTrace(const std::string& path);

// Saves as ReplaceFile does: a process that is killed leaves the old file whole.
absl::Status WriteTrace(const std::string& path, const RouteTrace& trace);

}  // namespace hearth
