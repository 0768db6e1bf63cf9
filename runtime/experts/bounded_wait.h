// Waiting for what another thread or a card is about to do, for a bounded time.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "runtime/base/clock.h"
#include "runtime/base/spin_wait.h"

namespace hearth {

// True as soon as done() is, false after `timeout_ns`. Looks at it all the time, but offers the
// processor to whoever else wants it.
inline bool AwaitFor(Clock& clock, int64_t timeout_ns, absl::FunctionRef<bool()> done) {
  if (done()) return true;
  const int64_t begin_ns = clock.NowNs();
  for (SpinWait wait; !done(); wait.Pause()) {
    if (clock.NowNs() - begin_ns >= timeout_ns) return done();
  }
  return true;
}

}  // namespace hearth
