// Waiting for what another thread or a card is about to do, for a bounded time.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "absl/functional/function_ref.h"

#include "runtime/base/clock.h"
#include "runtime/base/spin_wait.h"

namespace hearth {

// True as soon as done() is, false after `timeout_ns`. Looks at it without a pause at first, some
// twenty thousand times a second after a millisecond.
inline bool AwaitFor(Clock& clock, int64_t timeout_ns, absl::FunctionRef<bool()> done) {
  constexpr int64_t kSpinNs = 1'000'000;
  constexpr std::chrono::microseconds kSleep{50};
  if (done()) return true;
  const int64_t begin_ns = clock.NowNs();
  for (SpinWait wait;;) {
    if (done()) return true;
    const int64_t waited_ns = clock.NowNs() - begin_ns;
    if (waited_ns >= timeout_ns) return done();
    if (waited_ns < kSpinNs) {
      wait.Pause();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

}  // namespace hearth
