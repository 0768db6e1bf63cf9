// Time as an argument: components take a Clock, so that tests steer it.
#pragma once

#include <cstdint>

namespace hearth {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;  // monotonic
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() override;
};

class FakeClock final : public Clock {
 public:
  int64_t NowNs() override { return now_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace hearth
