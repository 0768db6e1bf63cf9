// The two kernels of LaunchQsaSelect.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

// Rows [row_begin, row_end) of the pass; row r has its scores at (r - row_begin) * score_stride.
struct QsaSelectKernelArgs {
  GpuPassTable pass;
  const float* index;  // (rows, indexer_head_count + 1, dim)
  float* scores;
  uint32_t* chosen;  // (rows, block_count_max)
  float scale;
  uint32_t layer, row_begin, row_end, score_stride;
  uint32_t indexer_head_count, indexer_head_dim, block_tokens, block_count_max;
};

// Scores of all complete blocks of rows that have more than block_count_max.
absl::Status EnqueueQsaScores(const QsaSelectKernelArgs& args, CudaStreamView stream);

// The choice from these scores, which are not negative.
absl::Status EnqueueQsaChoice(const QsaSelectKernelArgs& args, CudaStreamView stream);

}  // namespace hearth
