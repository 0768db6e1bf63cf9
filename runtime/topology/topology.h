// The cores of a machine as far as placing workers needs to know them. Plain data: tests make it
// up.
#pragma once

#include <cstdint>
#include <vector>

namespace hearth {

struct Core {
  std::vector<uint32_t> cpus;  // hardware threads, in the system's numbering; rising
  uint32_t tier = 0;           // 0 = the fastest kind of core of the machine, 1 = the next...
  uint32_t cache = 0;          // which last-level cache it shares; numbers mean nothing else
  uint32_t numa_node = 0;      // nearest memory, in the system's numbering
};

struct Topology {
  std::vector<Core> cores;
};

}  // namespace hearth
