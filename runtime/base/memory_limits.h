// How much memory this process may still take, and who says so.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hearth {

struct MemoryLimit {
  uint64_t available_bytes = 0;
  std::string source;  // the file that set the limit
};

// The smallest of: MemAvailable of /proc/meminfo, and for every control group on this process's
// path, in version 1 or 2, its limit less what it uses. Files are read below `root` ("/" but for
// tests). NotFound when not even /proc/meminfo can be read.
absl::StatusOr<MemoryLimit> AvailableMemory(const std::string& root = "/");

}  // namespace hearth
