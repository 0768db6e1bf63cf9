// The limits of this process that reading meets: locked memory (RLIMIT_MEMLOCK) and open files
// (RLIMIT_NOFILE). Raising means the soft limit up to the hard one, which any process may do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

struct LimitValues {
  uint64_t soft = 0;  // UINT64_MAX: none
  uint64_t hard = 0;
};

LimitValues LockedMemoryLimit();
LimitValues DescriptorLimit();

// True when the soft limit is higher now than before.
bool RaiseLockedMemoryLimit();
bool RaiseDescriptorLimit();

// "8.0 MiB" or "no limit".
std::string FormatLimitBytes(uint64_t bytes);

// ResourceExhausted: `what` found no free descriptor, the limit's name, values and remedy.
absl::Status DescriptorLimitError(std::string_view what);

}  // namespace hearth
