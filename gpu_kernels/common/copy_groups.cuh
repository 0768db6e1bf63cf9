// Copies of a thread into shared memory in groups that are waited for in order (PTX cp.async).
#pragma once

#include <cstdint>

#include "gpu_kernels/common/async_copy.cuh"

namespace hearth {

// 4, 8 or 16 bytes from global to shared memory, without registers; zeros when not `valid`.
template <uint32_t kBytes>
__device__ inline void CopyAsync(void* shared, const void* global, bool valid) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(SharedAddress(shared)),
                 "l"(global), "n"(kBytes), "r"(valid ? kBytes : 0)
                 : "memory");
  }
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `kLeft` of the committed groups are under way.
template <int kLeft>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace hearth
