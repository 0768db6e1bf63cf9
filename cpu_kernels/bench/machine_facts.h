// What the machine says of itself that matters to a measurement.
#pragma once

#include <cstdint>
#include <string>

namespace hearth {

struct CacheBytes {  // of one core; the third level is usually shared. Zero: not known
  uint64_t l1d = 0;
  uint64_t l2 = 0;
  uint64_t l3 = 0;
};

struct MachineFacts {
  std::string cpu_model;  // empty: not known
  CacheBytes caches;
  std::string huge_pages;   // "always", "madvise", "never", or empty
  double load_average = 0;  // runnable threads of the whole machine over the last minute
};

// Read from /proc and /sys below `root` ("/" but for tests). What is missing stays empty.
MachineFacts ReadMachineFacts(const std::string& root = "/");

// Bytes of this process that lie in huge pages now.
uint64_t HugePageBytesInUse(const std::string& root = "/");

}  // namespace hearth
