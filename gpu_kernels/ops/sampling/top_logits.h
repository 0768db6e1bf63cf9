// The largest logits of rows, where a choice needs no others: a few bytes go to the host in place
// of a row of the vocabulary. Exact, and the same for every launch: the order is that of
// runtime/model/sampling/sampler.h, the larger logit first, of equal ones the lower token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "runtime/base/top_logit.h"

namespace hearth {

inline constexpr uint32_t kTopLogitsMax = 256;

// Device addresses.
struct TopLogitsArgs {
  const float* logits = nullptr;  // (rows, vocab_count)
  uint32_t rows = 0;
  uint32_t vocab_count = 0;
  uint32_t count = 0;       // 1 to kTopLogitsMax, at most vocab_count
  TopLogit* top = nullptr;  // (rows, count)
  // (rows): 1 when `top` is what it should be; 0 when the row holds a NaN, +inf or nothing above
  // -inf, or more candidates than are looked at: then the row has to be looked at as a whole.
  uint32_t* exact = nullptr;
  std::byte* workspace = nullptr;  // TopLogitsWorkspaceBytes(rows), zeros before the first launch
};

uint64_t TopLogitsWorkspaceBytes(uint32_t rows);

// Enqueues the kernels on `stream`; they can be recorded into a graph. Launches that share a
// workspace follow each other. InvalidArgument names the bound that the arguments break.
absl::Status LaunchTopLogits(const TopLogitsArgs& args, CudaStreamView stream);

}  // namespace hearth
