// Tables of rotary angles for the rows of a pass, as RotaryTable of
// runtime/backend/cpu/qsa_mixer.cc: cos and sin of position * theta^(-2 i / rotary_dim), computed
// in double precision.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

inline constexpr uint32_t kRotaryDimMax = 256;

struct GpuRotaryTableArgs {
  GpuPassTable pass;
  float* cos = nullptr;  // (rows, rotary_dim / 2), at the row's position
  float* sin = nullptr;
  float* block_cos = nullptr;  // the same at the first position of the block of `block_tokens` that
  float* block_sin = nullptr;  // holds the row's; null: not wanted
  double theta = 0;
  uint32_t rotary_dim = 0;    // even, at most kRotaryDimMax
  uint32_t block_tokens = 1;  // of the indexer
};

// Enqueues and returns.
absl::Status LaunchRotaryTable(const GpuRotaryTableArgs& args, CudaStreamView stream);

}  // namespace hearth
