// A clock that moves on by itself whenever it is asked, so that loops that wait for time to pass
// end, after a number of rounds that a test knows.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"

namespace hearth {

class TickingClock final : public Clock {
 public:
  explicit TickingClock(int64_t tick_ns) : tick_ns_(tick_ns) {}
  int64_t NowNs() override { return now_ns_ += tick_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  const int64_t tick_ns_;
  int64_t now_ns_ = 0;
};

}  // namespace hearth
