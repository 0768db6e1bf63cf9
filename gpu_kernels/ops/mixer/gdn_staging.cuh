// The rows that a block of threads of the window's delta rule works on, in shared memory: pending
// ones as an earlier window left them, the window's own from their projections.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_convolve.cuh"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"

namespace hearth {

inline constexpr uint32_t kSliceColumns = 32;
inline constexpr uint32_t kSlicesMax = 4;

// Pending rows first, then the window's.
struct StagedRows {
  float* k;          // (rows, key_dim)
  float* q;          // (window rows, key_dim)
  float* v;          // (rows, columns): of a window row, its output later
  float* decay;      // (rows)
  float* beta;       // (rows)
  float* query_key;  // (window rows): q . k
  float* sum;        // (window rows, kSlicesMax): squares of the outputs of each slice
};

constexpr uint32_t StagedFloats(uint32_t window_rows_max, uint32_t key_dim, uint32_t columns) {
  return window_rows_max * (3 * key_dim + 2 * columns + 2 * 2 + 1 + kSlicesMax);
}

__device__ inline StagedRows StagedAt(float* shared, uint32_t window_rows_max, uint32_t key_dim,
                                      uint32_t columns) {
  StagedRows s;
  s.k = shared;
  s.q = s.k + 2 * window_rows_max * key_dim;
  s.v = s.q + window_rows_max * key_dim;
  s.decay = s.v + 2 * window_rows_max * columns;
  s.beta = s.decay + 2 * window_rows_max;
  s.query_key = s.beta + 2 * window_rows_max;
  s.sum = s.query_key + window_rows_max;
  return s;
}

// The share of one block: some slices of one head, of one segment.
struct GdnBlock {
  GpuPassTable pass;
  GpuGdnShape shape;
  GpuGdnInputs in;
  GpuSegment segment;
  GpuLayerState state;
  uint32_t head;
  uint32_t first_slice;
  uint32_t columns;  // of the block's slices
  uint32_t window_rows;

  __device__ uint32_t key_head() const { return head / (shape.value_heads / shape.key_heads); }
  // Of all blocks of the segment, one stores what belongs to a head, and one to a key head.
  __device__ bool owns_head() const { return first_slice == 0; }
  __device__ bool owns_key_head() const {
    return owns_head() && head % (shape.value_heads / shape.key_heads) == 0;
  }
};

// `count` floats, a multiple of four, of each of `rows` rows, by the whole block.
__device__ inline void StageAsync(float* to, uint32_t to_stride, const float* from,
                                  uint32_t from_stride, uint32_t rows, uint32_t count) {
  const uint32_t vectors = count / 4;
  for (uint32_t i = threadIdx.x; i < rows * vectors; i += blockDim.x) {
    const uint32_t row = i / vectors;
    const uint32_t vector = i % vectors;
    __pipeline_memcpy_async(to + row * to_stride + vector * 4,
                            from + size_t{row} * from_stride + vector * 4, 16);
  }
}

// Asks for the pending rows; they are there after __pipeline_wait_prior and a barrier.
__device__ inline void StagePendingRows(const GdnBlock& block, const StagedRows& staged) {
  const GpuGdnShape& shape = block.shape;
  const uint32_t rows = block.segment.pending_rows;
  const PendingRows from = PendingRowsOf(block.state, shape, block.pass.window_rows_max,
                                         block.segment.parity, block.head);
  const uint32_t channels = ChannelsOf(shape);
  StageAsync(staged.k, shape.key_dim, from.k, channels, rows, shape.key_dim);
  StageAsync(staged.v, block.columns, from.v + block.first_slice * kSliceColumns, channels, rows,
             block.columns);
  for (uint32_t i = threadIdx.x; i < rows; i += blockDim.x) {
    staged.decay[i] = from.decay[i * shape.value_heads];
    staged.beta[i] = from.beta[i * shape.value_heads];
  }
}

// One vector of the convolution of row t into the staged rows; its projection also goes into the
// ring when the block owns it.
__device__ inline void ConvolveVector(const GdnBlock& block, const StagedRows& staged, uint32_t t,
                                      uint32_t vector) {
  const GpuGdnShape& shape = block.shape;
  const uint32_t key_vectors = shape.key_dim / 4;
  const uint32_t channels = ChannelsOf(shape);
  const uint32_t at = block.segment.pending_rows + t;
  uint32_t i = 0;  // vector of the row
  float* to = nullptr;
  bool owned = block.owns_key_head();
  if (vector < key_vectors) {
    i = block.key_head() * key_vectors + vector;
    to = staged.q + t * shape.key_dim + vector * 4;
  } else if (vector < 2 * key_vectors) {
    vector -= key_vectors;
    i = (shape.key_heads + block.key_head()) * key_vectors + vector;
    to = staged.k + at * shape.key_dim + vector * 4;
  } else {
    vector -= 2 * key_vectors;
    i = 2 * shape.key_heads * key_vectors +
        (block.head * shape.value_dim + block.first_slice * kSliceColumns) / 4 + vector;
    to = staged.v + at * block.columns + vector * 4;
    owned = true;
  }
  const RowPlace place = {&block.segment, t, block.segment.base + t};
  const float* row = block.in.projected + size_t{block.segment.row_begin + t} * channels;
  StoreVector(to, 0,
              ConvolvedVector(block.pass, place, row, block.state.conv_ring, block.in.conv,
                              shape.taps, channels, i));
  if (owned) {
    const size_t slot = place.position & (block.pass.ring_rows - 1);
    StoreVector(block.state.conv_ring + slot * channels, i, LoadVector(row, i));
  }
}

// Convolution and gates of the window's rows; q and k are not yet normalised.
__device__ inline void ConvolveWindowRows(const GdnBlock& block, const StagedRows& staged) {
  const GpuGdnShape& shape = block.shape;
  const uint32_t vectors = (2 * shape.key_dim + block.columns) / 4;
  for (uint32_t i = threadIdx.x; i < block.window_rows * vectors; i += blockDim.x) {
    ConvolveVector(block, staged, i / vectors, i % vectors);
  }
  const float a_log = block.in.a_log[block.head];
  const float dt_bias = block.in.dt_bias[block.head];
  for (uint32_t t = threadIdx.x; t < block.window_rows; t += blockDim.x) {
    const size_t from = size_t{block.segment.row_begin + t} * shape.value_heads + block.head;
    const float decay = expf(LogDecayOf(block.in.a[from], a_log, dt_bias));
    const float beta = SigmoidOf(block.in.b[from]);
    staged.decay[block.segment.pending_rows + t] = decay;
    staged.beta[block.segment.pending_rows + t] = beta;
    if (block.owns_head()) {
      const size_t to =
          (size_t{1 - block.segment.parity} * block.pass.window_rows_max + t) * shape.value_heads +
          block.head;
      block.state.pending_decay[to] = decay;
      block.state.pending_beta[to] = beta;
    }
  }
}

// Normalises q and k of the window's rows, multiplies them, and leaves what the block owns of the
// rows in the pending set of this window: a warp for each row.
__device__ inline void FinishWindowRows(const GdnBlock& block, const StagedRows& staged) {
  const GpuGdnShape& shape = block.shape;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t channels = ChannelsOf(shape);
  const bool there = lane < shape.key_dim / 4;
  for (uint32_t t = threadIdx.x / kWarpLanes; t < block.window_rows; t += blockDim.x / kWarpLanes) {
    const uint32_t at = block.segment.pending_rows + t;
    float* const to_q = staged.q + t * shape.key_dim;
    float* const to_k = staged.k + at * shape.key_dim;
    float4 q = there ? LoadVector(to_q, lane) : float4{0, 0, 0, 0};
    float4 k = there ? LoadVector(to_k, lane) : float4{0, 0, 0, 0};
    const float q_factor = L2Factor(WarpSum(AddSquares(q, 0.0f)), QueryScale(shape.key_dim));
    const float k_factor = L2Factor(WarpSum(AddSquares(k, 0.0f)), 1.0f);
    q = MapVector(q, [q_factor](float v) { return __fmul_rn(v, q_factor); });
    k = MapVector(k, [k_factor](float v) { return __fmul_rn(v, k_factor); });
    float product = __fmul_rn(q.x, k.x);
    product = __fmaf_rn(q.y, k.y, product);
    product = __fmaf_rn(q.z, k.z, product);
    product = WarpSum(__fmaf_rn(q.w, k.w, product));
    if (lane == 0) staged.query_key[t] = product;
    float* const pending =
        block.state.pending_qkv +
        (size_t{1 - block.segment.parity} * block.pass.window_rows_max + t) * channels;
    if (there) {
      StoreVector(to_q, lane, q);
      StoreVector(to_k, lane, k);
      if (block.owns_key_head()) {
        StoreVector(pending + block.key_head() * shape.key_dim, lane, q);
        StoreVector(pending + (shape.key_heads + block.key_head()) * shape.key_dim, lane, k);
      }
    }
    if (lane < block.columns / 4) {
      StoreVector(pending + 2 * shape.key_heads * shape.key_dim + block.head * shape.value_dim +
                      block.first_slice * kSliceColumns,
                  lane, LoadVector(staged.v + at * block.columns, lane));
    }
  }
}

}  // namespace hearth
