// The delta rule of gdn.h row by row, for windows and for pending rows. Columns of a state do not
// depend on each other: a warp keeps eight columns of one head in registers, sixteen lanes to a
// column, and walks over the rows without a barrier. Four warps make a slice of 32 columns, which
// is also a quantised block of the output. The slices of a head meet once, for the norm of its
// outputs: in a cluster of blocks where the card has clusters, else in one block.
//
// State, read once: 4 bytes for each (key, value) pair; written once when rows were pending.
// Both kinds of rows take the same steps, so the bits of a row do not depend on how the rows before
// it were cut into windows.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kSliceColumns = 32;
constexpr uint32_t kSliceWarps = 4;
constexpr uint32_t kSliceThreads = kSliceWarps * kWarpLanes;
constexpr uint32_t kSlicesMax = 4;
constexpr uint32_t kWarpRowsMax = kGdnWindowRowsMax / kSliceWarps;  // whose output a warp finishes

struct KernelArgs {
  GpuPassTable pass;
  GpuGdnShape shape;
  GpuGatedNormArgs output;
  uint32_t layer_begin;    // blockIdx.z counts from it
  uint32_t segment_begin;  // blockIdx.y counts from it
  uint32_t slices_per_block;
};

// One row as a warp needs it.
struct RowInputs {
  const float* k;
  const float* q;  // null: the row is pending, only the state is wanted
  const float* v;  // of the warp's eight columns
  float decay;
  float beta;
  float query_key;  // q . k
};

// The rows of the block, in shared memory: pending ones first, then the window's.
struct StagedRows {
  float* k;          // (rows, key_dim)
  float* q;          // (window rows, key_dim)
  float* v;          // (rows, columns): of a window row, its output later
  float* decay;      // (rows)
  float* beta;       // (rows)
  float* query_key;  // (window rows)
  float* sum;        // (window rows, kSlicesMax): squares of the outputs of each slice
};

__host__ __device__ constexpr uint32_t StagedFloats(uint32_t window_rows_max, uint32_t key_dim,
                                                    uint32_t columns) {
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

// `count` floats, a multiple of four, by the whole block.
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

struct BlockPlace {
  uint32_t head;
  uint32_t first_slice;
  uint32_t pending_rows;
  uint32_t window_rows;
};

// The rows of one set of pending rows into the staged rows from `at` on.
__device__ inline void StageSet(const KernelArgs& args, const GpuLayerState& state,
                                const BlockPlace& place, uint32_t parity, uint32_t at,
                                uint32_t rows, bool with_queries, const StagedRows& staged) {
  const GpuGdnShape& shape = args.shape;
  const PendingRows from = PendingRowsOf(state, shape, args.pass.window_rows_max, parity, place.head);
  const uint32_t columns = args.slices_per_block * kSliceColumns;
  const uint32_t channels = ChannelsOf(shape);
  StageAsync(staged.k + at * shape.key_dim, shape.key_dim, from.k, channels, rows, shape.key_dim);
  StageAsync(staged.v + at * columns, columns, from.v + place.first_slice * kSliceColumns, channels,
             rows, columns);
  if (with_queries) {
    StageAsync(staged.q, shape.key_dim, from.q, channels, rows, shape.key_dim);
  }
  for (uint32_t i = threadIdx.x; i < rows; i += blockDim.x) {
    staged.decay[at + i] = from.decay[i * shape.value_heads];
    staged.beta[at + i] = from.beta[i * shape.value_heads];
  }
}

// Lane l holds rows (l / 2) * kKeyRows ... of the state, columns (l % 2) * 4 ... of the warp's
// eight.
template <uint32_t kKeyRows>
struct StateTile {
  float4 of[kKeyRows];
};

template <uint32_t kKeyRows>
__device__ inline void LoadKeys(const float* from, uint32_t lane, float (&values)[kKeyRows]) {
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) values[i] = from[lane / 2 * kKeyRows + i];
}

// Sums over the sixteen lanes of each column, cut in halves: afterwards the lane's one column is
// ColumnOf(lane).
__device__ inline float2 HalveOver(float4 v, uint32_t lane, uint32_t bit) {
  const bool upper = (lane & bit) != 0;
  const float send0 = upper ? v.x : v.z;
  const float send1 = upper ? v.y : v.w;
  const float keep0 = upper ? v.z : v.x;
  const float keep1 = upper ? v.w : v.y;
  return {keep0 + __shfl_xor_sync(kAllWarpLanes, send0, bit),
          keep1 + __shfl_xor_sync(kAllWarpLanes, send1, bit)};
}
__device__ inline float HalveOver(float2 v, uint32_t lane, uint32_t bit) {
  const bool upper = (lane & bit) != 0;
  const float send = upper ? v.x : v.y;
  const float keep = upper ? v.y : v.x;
  return keep + __shfl_xor_sync(kAllWarpLanes, send, bit);
}
__device__ inline float SumOfColumn(float4 v, uint32_t lane) {
  float sum = HalveOver(HalveOver(v, lane, 16), lane, 8);
  sum = sum + __shfl_xor_sync(kAllWarpLanes, sum, 4);
  return sum + __shfl_xor_sync(kAllWarpLanes, sum, 2);
}
__device__ inline uint32_t ColumnOf(uint32_t lane) {
  return (lane & 1) * 4 + (lane & 16) / 8 + (lane & 8) / 8;
}

template <uint32_t kKeyRows>
__device__ inline float4 TimesState(const StateTile<kKeyRows>& s, const float (&x)[kKeyRows]) {
  float4 acc = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    acc = {__fmaf_rn(s.of[i].x, x[i], acc.x), __fmaf_rn(s.of[i].y, x[i], acc.y),
           __fmaf_rn(s.of[i].z, x[i], acc.z), __fmaf_rn(s.of[i].w, x[i], acc.w)};
  }
  return acc;
}

// One row of the recurrence on the warp's columns. With a query, returns the output of column
// ColumnOf(lane), from the state before the row: q (decay S + k d) = decay (q S) + (q . k) d.
template <uint32_t kKeyRows>
__device__ inline float RunRow(const RowInputs& row, uint32_t lane, StateTile<kKeyRows>* s) {
  float key[kKeyRows];
  LoadKeys<kKeyRows>(row.k, lane, key);
  float out = 0;
  if (row.q != nullptr) {
    float query[kKeyRows];
    LoadKeys<kKeyRows>(row.q, lane, query);
    out = SumOfColumn(TimesState(*s, query), lane);
  }
  const float read = SumOfColumn(TimesState(*s, key), lane);
  const float value = row.v[ColumnOf(lane)];
  const float delta = __fmul_rn(row.beta, __fsub_rn(value, __fmul_rn(row.decay, read)));
  out = __fmaf_rn(row.query_key, delta, __fmul_rn(row.decay, out));
  const uint32_t half = lane & 1;
  const float4 d = {__shfl_sync(kAllWarpLanes, delta, half),
                    __shfl_sync(kAllWarpLanes, delta, half + 8),
                    __shfl_sync(kAllWarpLanes, delta, half + 16),
                    __shfl_sync(kAllWarpLanes, delta, half + 24)};
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    float4& at = s->of[i];
    at = {__fmaf_rn(key[i], d.x, __fmul_rn(row.decay, at.x)),
          __fmaf_rn(key[i], d.y, __fmul_rn(row.decay, at.y)),
          __fmaf_rn(key[i], d.z, __fmul_rn(row.decay, at.z)),
          __fmaf_rn(key[i], d.w, __fmul_rn(row.decay, at.w))};
  }
  return out;
}

// q . k of every window row, a warp for each.
__device__ inline void QueryKeyProducts(const StagedRows& staged, const BlockPlace& place,
                                        uint32_t key_dim) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  for (uint32_t t = threadIdx.x / kWarpLanes; t < place.window_rows;
       t += blockDim.x / kWarpLanes) {
    const float* k = staged.k + (place.pending_rows + t) * key_dim;
    const float* q = staged.q + t * key_dim;
    float acc = 0;
    for (uint32_t i = lane; i < key_dim; i += kWarpLanes) acc = __fmaf_rn(q[i], k[i], acc);
    acc = WarpSum(acc);
    if (lane == 0) staged.query_key[t] = acc;
  }
}

// Gives every slice the sums of squares of all of them. `sum` of this block's slices is there.
__device__ inline void ExchangeSums(const KernelArgs& args, const BlockPlace& place, float* sum) {
#if __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  const cg::cluster_group cluster = cg::this_cluster();
  const uint32_t blocks = cluster.num_blocks();
  if (blocks > 1) {
    // The others have started (they all passed the first barrier of the kernel).
    const uint32_t own = place.window_rows * args.slices_per_block;
    for (uint32_t i = threadIdx.x; i < own * blocks; i += blockDim.x) {
      const uint32_t t = i / args.slices_per_block % place.window_rows;
      const uint32_t at = t * kSlicesMax + place.first_slice + i % args.slices_per_block;
      const uint32_t to = i / own;
      if (to != cluster.block_rank()) *cluster.map_shared_rank(sum + at, to) = sum[at];
    }
    cluster.sync();
    return;
  }
#endif
  __syncthreads();
}

// Norm, gate and quantisation of the outputs of slice `slice` of the head: rows share among the
// slice's warps, a lane for each column.
__device__ inline void FinishOutputs(const KernelArgs& args, const GpuSegment& segment,
                                     const BlockPlace& place, const StagedRows& staged,
                                     const float (&z)[kWarpRowsMax], uint32_t slice,
                                     uint32_t slice_in_block) {
  const GpuGdnShape& shape = args.shape;
  const GpuGatedNormArgs& output = args.output;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warp = threadIdx.x / kWarpLanes % kSliceWarps;
  const uint32_t columns = args.slices_per_block * kSliceColumns;
  const uint32_t slices = shape.value_dim / kSliceColumns;
  const float norm = output.norm[slice * kSliceColumns + lane];
#pragma unroll
  for (uint32_t j = 0; j < kWarpRowsMax; ++j) {
    const uint32_t t = warp + j * kSliceWarps;
    if (t >= place.window_rows) break;
    float sum = 0;
    for (uint32_t i = 0; i < slices; ++i) sum = __fadd_rn(sum, staged.sum[t * kSlicesMax + i]);
    const float factor = NormFactor(sum, shape.value_dim, output.epsilon);
    const float o =
        staged.v[(place.pending_rows + t) * columns + slice_in_block * kSliceColumns + lane];
    const float gate = output.gate == OutputGate::kSilu ? SiluOf(z[j]) : SigmoidOf(z[j]);
    const float y = __fmul_rn(__fmul_rn(__fmul_rn(o, factor), norm), gate);
    const size_t block =
        size_t{segment.row_begin + t} * (MixedDimOf(shape) / kSliceColumns) +
        place.head * slices + slice;
    if (output.mixed != nullptr) output.mixed[block * kSliceColumns + lane] = y;
    if (output.mixed_quantized.q == nullptr) continue;
    const QuantizedLane quantized = QuantizeLane(y, true);
    output.mixed_quantized.q[block * kSliceColumns + lane] = static_cast<int8_t>(quantized.q);
    if (lane == 0) output.mixed_quantized.scale[block] = quantized.scale;
    if (lane % 16 == 0) output.mixed_quantized.sum16[block * 2 + lane / 16] = quantized.sum16;
  }
}

// Block (slices of heads, segment, layer).
template <uint32_t kKeyRows, bool kUpdateOnly>
__global__ void __launch_bounds__(kSlicesMax* kSliceThreads)
    GdnRowsKernel(const KernelArgs args) {
  extern __shared__ float4 shared[];
  const GpuGdnShape& shape = args.shape;
  const uint32_t segment_index = args.segment_begin + blockIdx.y;
  if (segment_index >= *args.pass.segment_count) return;
  const GpuSegment segment = args.pass.segments[segment_index];
  const GpuLayerState state = segment.layers[args.layer_begin + blockIdx.z];
  if (state.delta_state == nullptr || (kUpdateOnly && segment.pending_rows == 0)) return;

  const uint32_t slices = shape.value_dim / kSliceColumns;
  const uint32_t blocks_per_head = slices / args.slices_per_block;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t slice_in_block = threadIdx.x / kSliceThreads;
  BlockPlace place;
  place.head = blockIdx.x / blocks_per_head;
  place.first_slice = blockIdx.x % blocks_per_head * args.slices_per_block;
  place.pending_rows = segment.pending_rows;
  place.window_rows = kUpdateOnly ? 0 : segment.rows;
  const uint32_t slice = place.first_slice + slice_in_block;
  const uint32_t columns = args.slices_per_block * kSliceColumns;
  const uint32_t column_in_block = threadIdx.x / kWarpLanes * 8;  // the warp's first

  constexpr uint32_t kKeyDim = kKeyRows * 16;
  float* const own_state = state.delta_state +
                           (size_t{place.head} * kKeyDim + lane / 2 * kKeyRows) * shape.value_dim +
                           place.first_slice * kSliceColumns + column_in_block + lane % 2 * 4;
  StateTile<kKeyRows> s;
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    s.of[i] = LoadVector(own_state + i * shape.value_dim, 0);
  }
  const StagedRows staged =
      StagedAt(reinterpret_cast<float*>(shared), args.pass.window_rows_max, kKeyDim, columns);
  StageSet(args, state, place, segment.parity, 0, place.pending_rows, false, staged);
  float z[kWarpRowsMax] = {};
  if (!kUpdateOnly) {
    StageSet(args, state, place, 1 - segment.parity, place.pending_rows, place.window_rows, true,
             staged);
    const uint32_t warp = threadIdx.x / kWarpLanes % kSliceWarps;
#pragma unroll
    for (uint32_t j = 0; j < kWarpRowsMax; ++j) {
      const uint32_t t = warp + j * kSliceWarps;
      if (t < place.window_rows) {
        z[j] = args.output.z[size_t{segment.row_begin + t} * MixedDimOf(shape) +
                             place.head * shape.value_dim + slice * kSliceColumns + lane];
      }
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if (!kUpdateOnly) QueryKeyProducts(staged, place, kKeyDim);

  for (uint32_t t = 0; t < place.pending_rows; ++t) {
    RunRow<kKeyRows>({staged.k + t * kKeyDim, nullptr, staged.v + t * columns + column_in_block,
                      staged.decay[t], staged.beta[t], 0.0f},
                     lane, &s);
  }
  if (place.pending_rows > 0) {
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; ++i) {
      StoreVector(own_state + i * shape.value_dim, 0, s.of[i]);
    }
  }
  if (kUpdateOnly) return;
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().sync();  // q . k are there, and the other slices have started
#else
  __syncthreads();
#endif
  for (uint32_t t = 0; t < place.window_rows; ++t) {
    const uint32_t at = place.pending_rows + t;
    float* const v = staged.v + at * columns + column_in_block;
    const float out = RunRow<kKeyRows>({staged.k + at * kKeyDim, staged.q + t * kKeyDim, v,
                                        staged.decay[at], staged.beta[at], staged.query_key[t]},
                                       lane, &s);
    __syncwarp();
    if ((lane & 6) == 0) v[ColumnOf(lane)] = out;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / kWarpLanes % kSliceWarps;
  for (uint32_t t = warp; t < place.window_rows; t += kSliceWarps) {
    const float o =
        staged.v[(place.pending_rows + t) * columns + slice_in_block * kSliceColumns + lane];
    const float sum = WarpSum(__fmul_rn(o, o));
    if (lane == 0) staged.sum[t * kSlicesMax + slice] = sum;
  }
  __syncthreads();
  ExchangeSums(args, place, staged.sum);
  FinishOutputs(args, segment, place, staged, z, slice, slice_in_block);
}

template <bool kUpdateOnly>
absl::Status LaunchRows(KernelArgs args, uint32_t segments, uint32_t layers,
                        CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  int major = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                        stream.gpu().value),
                 "compute capability of the GPU"));
  const uint32_t slices = args.shape.value_dim / kSliceColumns;
  const bool clusters = major >= 9;
  args.slices_per_block = clusters || kUpdateOnly ? 1 : slices;
  const uint32_t blocks_per_head = slices / args.slices_per_block;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {blocks_per_head, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(args.shape.value_heads * blocks_per_head, segments, layers);
  config.blockDim = dim3(args.slices_per_block * kSliceThreads);
  config.dynamicSmemBytes = StagedFloats(args.pass.window_rows_max, args.shape.key_dim,
                                         args.slices_per_block * kSliceColumns) *
                            sizeof(float);
  config.stream = stream.get();
  config.attrs = &attribute;
  config.numAttrs = clusters && !kUpdateOnly ? 1 : 0;
  cudaError_t error = cudaSuccess;
  switch (args.shape.key_dim) {
    case 32:
      error = cudaLaunchKernelEx(&config, GdnRowsKernel<2, kUpdateOnly>, args);
      break;
    case 64:
      error = cudaLaunchKernelEx(&config, GdnRowsKernel<4, kUpdateOnly>, args);
      break;
    default:
      error = cudaLaunchKernelEx(&config, GdnRowsKernel<8, kUpdateOnly>, args);
      break;
  }
  return CudaStatus(error, "launch of the delta rule");
}

}  // namespace

absl::Status LaunchGdnWindow(const GpuGdnWindowArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnWindow(args));
  return LaunchRows<false>({.pass = args.pass,
                            .shape = args.shape,
                            .output = args.output,
                            .layer_begin = args.layer,
                            .segment_begin = 0,
                            .slices_per_block = 0},
                           std::min(args.pass.rows, kPassSegmentsMax), 1, stream);
}

absl::Status LaunchGdnFlush(const GpuGdnFlushArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnFlush(args));
  return LaunchRows<true>({.pass = args.pass,
                           .shape = args.shape,
                           .output = {},
                           .layer_begin = 0,
                           .segment_begin = args.segment,
                           .slices_per_block = 0},
                          1, args.layer_count, stream);
}

absl::Status LaunchGdnPending(const GpuPassTable& pass, const GpuGdnShape& shape, uint32_t layer,
                              CudaStreamView stream) {
  return LaunchRows<true>({.pass = pass,
                           .shape = shape,
                           .output = {},
                           .layer_begin = layer,
                           .segment_begin = 0,
                           .slices_per_block = 0},
                          std::min(pass.rows, kPassSegmentsMax), 1, stream);
}

}  // namespace hearth
