// Waiting for what another thread is about to do, without the kernel.
#pragma once

#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hearth {

// Each Pause() is one step of a wait: first pauses of the processor, which see a change at once;
// then offers of the processor to whoever else wants it, so that a thread without a core of its own
// gets to do what is waited for.
class SpinWait {
 public:
  void Pause() {
    if (steps_ < kPauses) {
      ++steps_;
#if defined(__x86_64__)
      _mm_pause();
      return;
#endif
    }
    std::this_thread::yield();
  }

 private:
  static constexpr uint32_t kPauses = 1000;  // 10-50 us on current processors
  uint32_t steps_ = 0;
};

}  // namespace hearth
