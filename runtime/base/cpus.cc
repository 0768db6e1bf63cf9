#include "runtime/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace hearth {

uint32_t AllowedCpuCount() {
  // The mask must have room for every processor that the kernel knows, or the call is refused.
  for (int cpus_max = 1024; cpus_max <= 1 << 16; cpus_max *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(cpus_max);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(cpus_max),
                                                                [](cpu_set_t* m) { CPU_FREE(m); });
    if (mask != nullptr && sched_getaffinity(0, bytes, mask.get()) == 0) {
      return std::max<uint32_t>(1, static_cast<uint32_t>(CPU_COUNT_S(bytes, mask.get())));
    }
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace hearth
