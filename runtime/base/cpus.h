// How many processors this process may use.
#pragma once

#include <cstdint>

namespace hearth {

// From the affinity mask, so that taskset and cpusets count; at least 1.
uint32_t AllowedCpuCount();

}  // namespace hearth
