// Where the owner of a reader sleeps while others finish reads or wake it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace hearth {

// Longest single sleep: an hour, so that no deadline overflows.
inline constexpr int64_t kSleepMaxNs = 3'600'000'000'000;

// Wake() is remembered until a wait has seen it; several before a wait are one. Thread-safe.
class WaitSignal {
 public:
  void Wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
  }
  // Sleeps until Wake(), or `timeout_ns` has passed; whether it was woken. Takes the wake away.
  bool Wait(int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    const auto timeout = std::chrono::nanoseconds(std::clamp<int64_t>(timeout_ns, 0, kSleepMaxNs));
    changed_.wait_for(lock, timeout, [this] { return woken_; });
    return std::exchange(woken_, false);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace hearth
