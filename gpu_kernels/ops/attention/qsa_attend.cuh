// The kernels of LaunchQsaAttend.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

struct QsaAttendKernelArgs {
  GpuPassTable pass;
  const float* qg;         // (rows, head_count, 2, head_dim)
  const uint32_t* chosen;  // (rows, block_count_max)
  float* partial;          // (rows, share_count, head_count, head_dim): sum of p * v
  float2* softmax;         // (rows, share_count, head_count): maximum of s, sum of p
  float* out;              // (rows, head_count * head_dim)
  int8_t* q;
  float* scale;
  int32_t* sum16;
  float softmax_scale;  // 1 / sqrt(head_dim)
  KvFormat kv_format;
  uint32_t layer, head_count, kv_head_count, head_dim;
  uint32_t block_tokens, block_count_max;
  uint32_t share_count;      // shares of a row that have a place in `partial`
  uint32_t tiles_per_share;  // tiles of kQsaSplitPositions positions
  bool dense_apart;          // rows that attend to all positions are EnqueueQsaDense's
};

// Every share of every row, by lists of positions.
absl::Status EnqueueQsaShares(const QsaAttendKernelArgs& args, CudaStreamView stream);

// Rows of a prompt that attend to all positions, when a block may have that much shared memory.
uint32_t QsaDenseSharedBytes(uint32_t head_dim);
absl::Status EnqueueQsaDense(const QsaAttendKernelArgs& args, CudaStreamView stream);

// Shares in order, gate, quantisation.
absl::Status EnqueueQsaMerge(const QsaAttendKernelArgs& args, CudaStreamView stream);

}  // namespace hearth
