// Where the rows of a value head lie, and the launch that applies pending ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/mixer/gdn.h"

namespace hearth {

// GpuGdnShape's own functions are the host's.
__device__ inline uint32_t ChannelsOf(const GpuGdnShape& shape) {
  return 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
}
__device__ inline uint32_t MixedDimOf(const GpuGdnShape& shape) {
  return shape.value_heads * shape.value_dim;
}

struct PendingRows {  // row strides: channels and value_heads
  const float* q;
  const float* k;
  const float* v;
  const float* decay;
  const float* beta;
};

__device__ inline PendingRows PendingRowsOf(const GpuLayerState& state, const GpuGdnShape& shape,
                                            uint32_t window_rows_max, uint32_t parity,
                                            uint32_t head) {
  const size_t first = size_t{parity} * window_rows_max;
  const float* qkv = state.pending_qkv + first * ChannelsOf(shape);
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  return {.q = qkv + key_head * shape.key_dim,
          .k = qkv + (shape.key_heads + key_head) * shape.key_dim,
          .v = qkv + 2 * shape.key_heads * shape.key_dim + head * shape.value_dim,
          .decay = state.pending_decay + first * shape.value_heads + head,
          .beta = state.pending_beta + first * shape.value_heads + head};
}

// Applies the pending rows of every segment to delta_state of `layer`.
absl::Status LaunchGdnPending(const GpuPassTable& pass, const GpuGdnShape& shape, uint32_t layer,
                              CudaStreamView stream);

}  // namespace hearth
