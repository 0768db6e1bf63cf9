// Who looks on as a server works.
#pragma once

#include "runtime/serve/telemetry/serve_counters.h"

namespace hearth {

// Called on the thread that runs the passes, which waits meanwhile: must be quick and allocate
// nothing. A round is at most one pass over a prompt and one window.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  virtual void BeforeRound() = 0;
  virtual void AfterRound(const ServeCounters& counters) = 0;
  // There is nothing to do: the thread will wait for work.
  virtual void BeforeIdle(const ServeCounters& counters) = 0;
};

}  // namespace hearth
