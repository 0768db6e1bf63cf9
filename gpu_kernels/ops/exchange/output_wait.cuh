// How a kernel waits for the host's outputs of a layer.
#pragma once

#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/exchange/layer_words.cuh"
#include "gpu_kernels/ops/exchange/output_wait.h"

namespace hearth {

// Waits for the launch before, in place of AwaitLaunchBefore(), and then for the outputs, if the
// layer has any: all threads of the block call, and see them. `stamps`: true in one block of the
// grid. What says whether outputs follow must have been written by a launch before the one before.
__device__ inline void AwaitOutputs(const OutputWait& wait, bool stamps) {
  const LayerWords& words = wait.words;
  const bool looks = threadIdx.x == 0;
  uint32_t sequence = 0;
  bool may_come = false;
  uint64_t word = 0;
  if (looks) {
    sequence = words.state->sequence;
    may_come = (words.state->flags & kListOutputsFollow) != 0;
    // A first look: its trip over the link passes while the launch before ends.
    if (may_come) word = LoadAcquire(wait.outputs);
  }
  AwaitLaunchBefore();
  if (looks && stamps) Stamp(words, sequence, ExchangeStamp::kOutputsBegin);
  if (looks && may_come && words.state->failed == 0) {
    const uint64_t start_ns = GlobalTimerNs();
    while (TagOf(word) != sequence && GlobalTimerNs() - start_ns < words.wait_ns_max) {
      word = LoadAcquire(wait.outputs);
    }
    if (TagOf(word) != sequence) {
      Fail(words, sequence, ExchangeStage::kOutputs);
    } else if (PayloadOf(word) != 0) {
      Fail(words, sequence, ExchangeStage::kNone);
    }
  }
  if (looks && stamps) Stamp(words, sequence, ExchangeStamp::kOutputsEnd);
  __syncthreads();
}

}  // namespace hearth
