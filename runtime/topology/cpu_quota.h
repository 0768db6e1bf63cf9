// How much processor time the control groups leave this process.
#pragma once

#include <optional>
#include <string>

namespace hearth {

struct CpuQuota {
  double cpus = 0;     // CPUs' worth of time, above 0
  std::string source;  // the file that sets it
};

// The smallest quota on this process's path: cpu.max in version 2, cpu.cfs_quota_us over
// cpu.cfs_period_us in version 1, parents included. Files are read below `root` ("/" but for
// tests); a file that is missing or unreadable sets no quota.
std::optional<CpuQuota> ReadCpuQuota(const std::string& root = "/");

}  // namespace hearth
