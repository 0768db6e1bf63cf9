// A delay in the middle of what a test disturbs: an event that comes late, not a wait for one.
#pragma once

#include <cstdint>
#include <thread>

#include "runtime/base/clock.h"

namespace hearth {

inline void YieldFor(int64_t microseconds) {
  SteadyClock clock;
  for (const int64_t end_ns = clock.NowNs() + microseconds * 1000; clock.NowNs() < end_ns;) {
    std::this_thread::yield();
  }
}

}  // namespace hearth
