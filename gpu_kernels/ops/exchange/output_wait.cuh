// How a kernel waits for the host's outputs of a layer.
#pragma once

#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/exchange/layer_words.cuh"
#include "gpu_kernels/ops/exchange/output_wait.h"

namespace hearth {

// What one block tells the others of a grid, in the card's memory.
__device__ inline uint64_t LoadOnCard(const uint64_t* at) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
__device__ inline void StoreOnCard(uint64_t* at, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// Waits for the launch before, in place of AwaitLaunchBefore(), and then for the outputs, if the
// layer has any: all threads of the block call, and see them. `leads`: true in the first block of
// the grid, which alone looks at the host's word and tells the others: looks over the link that go
// on at once hold each other up by a microsecond each. What says whether outputs follow must have
// been written by a launch before the one before.
__device__ inline void AwaitOutputs(const OutputWait& wait, bool leads) {
  const LayerWords& words = wait.words;
  const bool looks = threadIdx.x == 0;
  uint32_t sequence = 0;
  bool may_come = false;
  uint64_t word = 0;
  if (looks) {
    sequence = words.state->sequence;
    may_come = (words.state->flags & kListOutputsFollow) != 0;
    // A first look: its trip over the link passes while the launch before ends.
    if (may_come && leads) word = LoadAcquire(wait.outputs);
  }
  AwaitLaunchBefore();
  if (looks && leads) Stamp(words, sequence, ExchangeStamp::kOutputsBegin);
  if (looks && may_come && words.state->failed == 0) {
    const uint64_t seen = uint64_t{sequence} << 32 | (words.layer + 1);
    const uint64_t start_ns = GlobalTimerNs();
    if (leads) {
      while (TagOf(word) != sequence && GlobalTimerNs() - start_ns < words.wait_ns_max) {
        word = LoadAcquire(wait.outputs);
      }
      if (TagOf(word) != sequence) {
        Fail(words, sequence, ExchangeStage::kOutputs);
      } else if (PayloadOf(word) != 0) {
        Fail(words, sequence, ExchangeStage::kNone);
      }
      StoreOnCard(&words.state->outputs_seen, seen);  // or that they will not come
    } else {
      // The first block answers within its own bound.
      while (LoadOnCard(&words.state->outputs_seen) != seen &&
             GlobalTimerNs() - start_ns < 2 * words.wait_ns_max) {
      }
    }
  }
  if (looks && leads) Stamp(words, sequence, ExchangeStamp::kOutputsEnd);
  __syncthreads();
}

}  // namespace hearth
