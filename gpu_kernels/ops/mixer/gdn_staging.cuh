// The rows that a block of threads of the window's delta rule works on, in shared memory: pending
// ones as an earlier window left them, the window's own from their projections.
#pragma once

#include <cooperative_groups.h>
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
  uint32_t columns;      // of the block's slices
  uint32_t head_blocks;  // blocks of the head: a cluster, or one block
  uint32_t window_rows;

  __device__ uint32_t rank() const { return first_slice * kSliceColumns / columns; }
  __device__ uint32_t key_head() const { return head / (shape.value_heads / shape.key_heads); }
  // One block of a head stores what belongs to the head, the blocks of one head what belongs to a
  // key head.
  __device__ bool owns_head() const { return first_slice == 0; }
  __device__ bool of_first_head() const {
    return head % (shape.value_heads / shape.key_heads) == 0;
  }
};

// A barrier of all threads of a head's blocks in two halves. What was written to shared memory,
// also of other blocks, before the arrival is visible after the wait. Without clusters a head is
// one block.
__device__ inline void ArriveAtHead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void AwaitHead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// *to = v in every block of the head.
template <class T>
__device__ inline void StoreInHead(const GdnBlock& block, T* to, T v) {
  *to = v;
#if __CUDA_ARCH__ >= 900
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  for (uint32_t i = 1; i < block.head_blocks; ++i) {
    const uint32_t other = block.rank() + i < block.head_blocks
                               ? block.rank() + i
                               : block.rank() + i - block.head_blocks;
    *cluster.map_shared_rank(to, other) = v;
  }
#endif
}

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

// Whether each block of a head convolves all of its query and key, instead of a share that it hands
// to the others: rows so few that this takes no longer. The same for all blocks of the head.
__device__ inline bool ConvolvesAlone(const GdnBlock& block) {
  constexpr uint32_t kVectorsEachMax = 2;  // of a thread
  const uint32_t vectors = block.shape.key_dim / 2 + block.columns / 4;
  return block.head_blocks == 1 || block.window_rows * vectors <= kVectorsEachMax * blockDim.x;
}

// A vector of a row that this block convolves: of the head's query and key its share or all, and
// the values of its own columns.
struct VectorPlace {
  uint32_t i;   // of the row
  float* to;    // staged
  bool in_all;  // the head's other blocks want it
  bool owned;   // no other block stores its projection
};

__device__ inline VectorPlace PlaceVector(const GdnBlock& block, const StagedRows& staged,
                                          uint32_t t, uint32_t vector, bool alone) {
  const GpuGdnShape& shape = block.shape;
  const uint32_t key_vectors = shape.key_dim / 4;
  const uint32_t at = block.segment.pending_rows + t;
  const uint32_t share = 2 * key_vectors / block.head_blocks;
  const uint32_t here = alone ? 2 * key_vectors : share;  // of query and key
  if (vector >= here) {
    vector -= here;
    return {.i = 2 * shape.key_heads * key_vectors +
                 (block.head * shape.value_dim + block.first_slice * kSliceColumns) / 4 + vector,
            .to = staged.v + at * block.columns + vector * 4,
            .in_all = false,
            .owned = true};
  }
  if (!alone) vector += block.rank() * share;
  const bool is_key = vector >= key_vectors;
  const uint32_t in_head = is_key ? vector - key_vectors : vector;
  return {
      .i = ((is_key ? shape.key_heads : 0) + block.key_head()) * key_vectors + in_head,
      .to = (is_key ? staged.k + at * shape.key_dim : staged.q + t * shape.key_dim) + in_head * 4,
      .in_all = !alone,
      .owned = block.of_first_head() && vector / share == block.rank()};
}

__device__ inline uint32_t VectorsOfRow(const GdnBlock& block, bool alone) {
  return block.shape.key_dim / 2 / (alone ? 1 : block.head_blocks) + block.columns / 4;
}

__device__ inline void FetchIntoCache(const float* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Asks for what the convolution reads beside the projections: its weights, and the rows before the
// window's.
__device__ inline void FetchConvolution(const GdnBlock& block, const StagedRows& staged,
                                        bool alone) {
  const size_t channels = ChannelsOf(block.shape);
  for (uint32_t i = threadIdx.x; i < VectorsOfRow(block, alone); i += blockDim.x) {
    const uint32_t at = PlaceVector(block, staged, 0, i, alone).i * 4;
    for (uint32_t tap = 0; tap < block.shape.taps; ++tap) {
      FetchIntoCache(block.in.conv + tap * channels + at);
      if (tap == 0 || tap > block.segment.base) continue;
      const uint32_t slot = (block.segment.base - tap) & (block.pass.ring_rows - 1);
      FetchIntoCache(block.state.conv_ring + slot * channels + at);
    }
  }
}

// Convolution of the window's rows; q and k are not yet normalised. Projections also go into the
// ring. Unless `alone`, a head's blocks must have started.
__device__ inline void ConvolveWindowRows(const GdnBlock& block, const StagedRows& staged,
                                          bool alone) {
  constexpr uint32_t kInFlight = 2;  // vectors of a thread
  const GpuGdnShape& shape = block.shape;
  const uint32_t channels = ChannelsOf(shape);
  const uint32_t vectors = VectorsOfRow(block, alone);
  const uint32_t count = block.window_rows * vectors;
  for (uint32_t begin = threadIdx.x; begin < count; begin += kInFlight * blockDim.x) {
    VectorPlace place[kInFlight];
    ConvolvedVector convolved[kInFlight];
    uint32_t row[kInFlight];
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; ++j) {
      const uint32_t item = min(begin + j * blockDim.x, count - 1);
      row[j] = item / vectors;
      place[j] = PlaceVector(block, staged, row[j], item % vectors, alone);
      convolved[j] =
          Convolve(block.pass, {&block.segment, row[j], block.segment.base + row[j]},
                   block.in.projected + size_t{block.segment.row_begin + row[j]} * channels,
                   block.state.conv_ring, block.in.conv, shape.taps, channels, place[j].i);
    }
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; ++j) {
      if (begin + j * blockDim.x >= count) break;
      auto* const to = reinterpret_cast<float4*>(place[j].to);
      if (place[j].in_all) {
        StoreInHead(block, to, convolved[j].x);
      } else {
        *to = convolved[j].x;
      }
      if (place[j].owned) {
        const size_t slot = (block.segment.base + row[j]) & (block.pass.ring_rows - 1);
        StoreVector(block.state.conv_ring + slot * channels, place[j].i, convolved[j].row);
      }
    }
  }
}

struct GateWeights {
  float a_log;
  float dt_bias;
};

__device__ inline GateWeights LoadGateWeights(const GdnBlock& block) {
  return {block.in.a_log[block.head], block.in.dt_bias[block.head]};
}

// Gates of the window's rows.
__device__ inline void ComputeGates(const GdnBlock& block, const StagedRows& staged,
                                    const GateWeights& weights) {
  const GpuGdnShape& shape = block.shape;
  for (uint32_t t = threadIdx.x; t < block.window_rows; t += blockDim.x) {
    const size_t from = size_t{block.segment.row_begin + t} * shape.value_heads + block.head;
    const float decay = expf(LogDecayOf(block.in.a[from], weights.a_log, weights.dt_bias));
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

// WarpSum of both, side by side: a warp waits for each exchange.
__device__ inline float2 WarpSums(float2 v) {
#pragma unroll
  for (uint32_t offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    const float x = __shfl_xor_sync(kAllWarpLanes, v.x, offset);
    const float y = __shfl_xor_sync(kAllWarpLanes, v.y, offset);
    v = {v.x + x, v.y + y};
  }
  return v;
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
    const float2 squares = WarpSums({AddSquares(q, 0.0f), AddSquares(k, 0.0f)});
    const float q_factor = L2Factor(squares.x, QueryScale(shape.key_dim));
    const float k_factor = L2Factor(squares.y, 1.0f);
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
      if (block.owns_head() && block.of_first_head()) {
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
