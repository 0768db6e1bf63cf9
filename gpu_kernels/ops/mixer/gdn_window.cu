// The delta rule of gdn.h row by row, for windows (with their convolution, gates and norms) and for
// pending rows. Columns of a state do not
// depend on each other: a warp keeps eight columns of one head in registers, sixteen lanes to a
// column, and walks over the rows without a barrier. Four warps make a slice of 32 columns, which
// is also a quantised block of the output. The slices of a head meet once, for the norm of its
// outputs: in a cluster of blocks where the card has clusters, else in one block.
//
// State, read once: 4 bytes for each (key, value) pair; written once when rows were pending.
// Both kinds of rows take the same steps, so the bits of a row do not depend on how the rows before
// it were cut into windows.
#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_recurrence.cuh"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "gpu_kernels/ops/mixer/gdn_staging.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kSliceWarps = 4;
constexpr uint32_t kSliceThreads = kSliceWarps * kWarpLanes;
// With clusters a block has one slice.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr uint32_t kBlockThreadsMax = kSliceThreads;
#else
constexpr uint32_t kBlockThreadsMax = kSlicesMax * kSliceThreads;
#endif
constexpr uint32_t kWarpRowsMax = kGdnWindowRowsMax / kSliceWarps;  // whose output a warp finishes

struct KernelArgs {
  GpuPassTable pass;
  GpuGdnShape shape;
  GpuGdnInputs in;
  GpuGatedNormArgs output;
  uint32_t layer_begin;    // blockIdx.z counts from it
  uint32_t segment_begin;  // blockIdx.y counts from it
  uint32_t slices_per_block;
};

// Where this thread works: slice `slice` of the head, slice `in_block` of the block.
struct ThreadPlace {
  uint32_t lane;
  uint32_t warp;  // of the slice
  uint32_t slice;
  uint32_t in_block;
};

// z of the outputs that the warp finishes: rows warp, warp + kSliceWarps, ...
__device__ inline void LoadGates(const GdnBlock& block, const float* z, const ThreadPlace& place,
                                 float (&gates)[kWarpRowsMax]) {
  const size_t column =
      block.head * block.shape.value_dim + place.slice * kSliceColumns + place.lane;
#pragma unroll
  for (uint32_t j = 0; j < kWarpRowsMax; ++j) {
    const uint32_t t = place.warp + j * kSliceWarps;
    gates[j] = t < block.window_rows
                   ? z[size_t{block.segment.row_begin + t} * MixedDimOf(block.shape) + column]
                   : 0.0f;
  }
}

// Norm, gate and quantisation of the outputs, which lie where the rows' values were: a lane for
// each column.
__device__ inline void FinishOutputs(const GdnBlock& block, const GpuGatedNormArgs& output,
                                     const StagedRows& staged, const float (&z)[kWarpRowsMax],
                                     float norm, const ThreadPlace& place) {
  const uint32_t slices = block.shape.value_dim / kSliceColumns;
#pragma unroll
  for (uint32_t j = 0; j < kWarpRowsMax; ++j) {
    const uint32_t t = place.warp + j * kSliceWarps;
    if (t >= block.window_rows) break;
    float sum = 0;
    for (uint32_t i = 0; i < slices; ++i) sum = __fadd_rn(sum, staged.sum[t * kSlicesMax + i]);
    const float factor = NormFactor(sum, block.shape.value_dim, output.epsilon);
    const float o = staged.v[(block.segment.pending_rows + t) * block.columns +
                             place.in_block * kSliceColumns + place.lane];
    const float gate = output.gate == OutputGate::kSilu ? SiluOf(z[j]) : SigmoidOf(z[j]);
    const float y = __fmul_rn(__fmul_rn(__fmul_rn(o, factor), norm), gate);
    const size_t to = size_t{block.segment.row_begin + t} * block.shape.value_heads * slices +
                      block.head * slices + place.slice;
    if (output.mixed != nullptr) output.mixed[to * kSliceColumns + place.lane] = y;
    if (output.mixed_quantized.q != nullptr) {
      StoreQuantizedLane(output.mixed_quantized, to * kSliceColumns + place.lane, y);
    }
  }
}

// Row t of the window, for a warp whose first column in the block is `column`.
__device__ inline RowInputs InputsOf(const GdnBlock& block, const StagedRows& staged,
                                     uint32_t column, uint32_t t) {
  const uint32_t at = block.segment.pending_rows + t;
  return {.k = staged.k + at * block.shape.key_dim,
          .q = staged.q + t * block.shape.key_dim,
          .v = staged.v + at * block.columns + column,
          .decay = staged.decay + at,
          .beta = staged.beta + at,
          .query_key = staged.query_key + t};
}

// The pending rows on the warp's columns of the state.
template <uint32_t kKeyRows>
__device__ inline void RunPending(const GdnBlock& block, const StagedRows& staged, uint32_t lane,
                                  uint32_t column, StateTile<kKeyRows>* s) {
  for (uint32_t t = 0; t < block.segment.pending_rows; ++t) {
    const RowInputs inputs = {.k = staged.k + t * block.shape.key_dim,
                              .q = nullptr,
                              .v = staged.v + t * block.columns + column,
                              .decay = staged.decay + t,
                              .beta = staged.beta + t,
                              .query_key = nullptr};
    RunRow<kKeyRows, false>(LoadRow<kKeyRows, false>(inputs, lane), lane, s);
  }
}

// The window's rows on the warp's columns of the state; their outputs replace their values. Leaves
// every block of the head the sums of squares of all slices.
// `started`: whether they are known to have started.
template <uint32_t kKeyRows>
__device__ inline void RunWindow(const GdnBlock& block, const StagedRows& staged,
                                 const ThreadPlace& place, uint32_t column, bool started,
                                 StateTile<kKeyRows>* s) {
  const uint32_t last = block.window_rows - 1;
  LaneRow<kKeyRows> row = LoadRow<kKeyRows, true>(InputsOf(block, staged, column, 0), place.lane);
  for (uint32_t t = 0; t <= last; ++t) {
    const LaneRow<kKeyRows> next =
        LoadRow<kKeyRows, true>(InputsOf(block, staged, column, min(t + 1, last)), place.lane);
    __syncwarp();  // the last row's values are read again, before its outputs replace them
    const float out = RunRow<kKeyRows, true>(row, place.lane, s);
    if ((place.lane & 6) == 0) {
      staged.v[(block.segment.pending_rows + t) * block.columns + column + ColumnOf(place.lane)] =
          out;
    }
    row = next;
  }
  if (!started) AwaitHead();
  __syncthreads();
  for (uint32_t t = place.warp; t < block.window_rows; t += kSliceWarps) {
    const float o = staged.v[(block.segment.pending_rows + t) * block.columns +
                             place.in_block * kSliceColumns + place.lane];
    const float sum = WarpSum(__fmul_rn(o, o));
    if (place.lane == 0) StoreInHead(block, staged.sum + t * kSlicesMax + place.slice, sum);
  }
  ArriveAtHead();
  AwaitHead();
}

// What this block of threads is to do; without a delta_state, nothing.
template <bool kUpdateOnly>
__device__ inline GdnBlock BlockOf(const KernelArgs& args) {
  const uint32_t segment_index = args.segment_begin + blockIdx.y;
  const uint32_t segment_count = *args.pass.segment_count;
  const uint32_t value_dim = args.shape.value_dim;
  const uint32_t blocks_per_head = value_dim / kSliceColumns / args.slices_per_block;
  GdnBlock block = {.pass = args.pass,
                    .shape = args.shape,
                    .in = args.in,
                    .segment = args.pass.segments[segment_index],
                    .state = {},
                    .head = blockIdx.x / blocks_per_head,
                    .first_slice = blockIdx.x % blocks_per_head * args.slices_per_block,
                    .columns = args.slices_per_block * kSliceColumns,
                    .head_blocks = blocks_per_head,
                    .window_rows = 0};
  if (segment_index < segment_count && (!kUpdateOnly || block.segment.pending_rows > 0)) {
    block.state = block.segment.layers[args.layer_begin + blockIdx.z];
  }
  if (!kUpdateOnly) block.window_rows = block.segment.rows;
  return block;
}

// Block (slices of heads, segment, layer).
template <uint32_t kKeyRows, bool kUpdateOnly>
__global__ void __launch_bounds__(kBlockThreadsMax) GdnRowsKernel(const KernelArgs args) {
  extern __shared__ float4 shared[];
  constexpr uint32_t kKeyDim = kKeyRows * 16;
  // Up to AwaitLaunchBefore: nothing that the launch before this one reads or writes. That is the
  // one of the projections, and every launch before it has ended (launch.cuh). The state and its
  // pending rows are touched by nothing but the delta rule of this layer, which ran last in the
  // pass before; the pass table is written before a pass begins. So the pending rows are applied,
  // and the state is stored, while the projections are still computed.
  if (kUpdateOnly) AwaitLaunchBefore();
  const GdnBlock block = BlockOf<kUpdateOnly>(args);
  if (block.state.delta_state == nullptr) {
    AwaitLaunchBefore();  // also for those who wait for this launch
    return;
  }
  if (!kUpdateOnly) ArriveAtHead();
  const uint32_t value_dim = args.shape.value_dim;
  const ThreadPlace place = {.lane = threadIdx.x % kWarpLanes,
                             .warp = threadIdx.x / kWarpLanes % kSliceWarps,
                             .slice = block.first_slice + threadIdx.x / kSliceThreads,
                             .in_block = threadIdx.x / kSliceThreads};
  const uint32_t column =
      threadIdx.x / kWarpLanes * kWarpColumns;  // the warp's first, in the block

  float* const own_state = block.state.delta_state +
                           (size_t{block.head} * kKeyDim + place.lane / 2 * kKeyRows) * value_dim +
                           block.first_slice * kSliceColumns + column + place.lane % 2 * 4;
  StateTile<kKeyRows> s;
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) s.of[i] = LoadVector(own_state + i * value_dim, 0);
  const StagedRows staged =
      StagedAt(reinterpret_cast<float*>(shared), args.pass.window_rows_max, kKeyDim, block.columns);
  StagePendingRows(block, staged);
  __pipeline_commit();
  const bool alone = !kUpdateOnly && ConvolvesAlone(block);
  GateWeights gate_weights = {};
  float norm = 0;
  if (!kUpdateOnly) {
    FetchConvolution(block, staged, alone);
    gate_weights = LoadGateWeights(block);
    norm = args.output.norm[place.slice * kSliceColumns + place.lane];
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  RunPending<kKeyRows>(block, staged, place.lane, column, &s);
  if (block.segment.pending_rows > 0) {
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; ++i) StoreVector(own_state + i * value_dim, 0, s.of[i]);
  }
  if (kUpdateOnly) return;
  AwaitLaunchBefore();
  float z[kWarpRowsMax];
  LoadGates(block, args.output.z, place, z);
  if (!alone) AwaitHead();  // its blocks have started
  ConvolveWindowRows(block, staged, alone);
  ComputeGates(block, staged, gate_weights);
  AllowLaunchAfter();
  if (!alone) {
    ArriveAtHead();
    AwaitHead();
  }
  __syncthreads();
  FinishWindowRows(block, staged);
  __syncthreads();
  RunWindow<kKeyRows>(block, staged, place, column, !alone, &s);
  FinishOutputs(block, args.output, staged, z, norm, place);
}

template <bool kUpdateOnly>
auto RowsKernelOf(uint32_t key_dim) {
  switch (key_dim) {
    case 32:
      return GdnRowsKernel<2, kUpdateOnly>;
    case 64:
      return GdnRowsKernel<4, kUpdateOnly>;
    default:
      return GdnRowsKernel<8, kUpdateOnly>;
  }
}

template <bool kUpdateOnly>
absl::Status LaunchRows(KernelArgs args, uint32_t segments, uint32_t layers,
                        CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  int major = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                        static_cast<int>(stream.gpu().value)),
                 "compute capability of the GPU"));
  const uint32_t slices = args.shape.value_dim / kSliceColumns;
  const bool clusters = major >= 9;
  args.slices_per_block = clusters || kUpdateOnly ? 1 : slices;
  const uint32_t blocks_per_head = slices / args.slices_per_block;
  const LaunchShape shape{
      .blocks = dim3(args.shape.value_heads * blocks_per_head, segments, layers),
      .threads = args.slices_per_block * kSliceThreads,
      .shared_bytes =
          static_cast<uint32_t>(StagedFloats(args.pass.window_rows_max, args.shape.key_dim,
                                             args.slices_per_block * kSliceColumns) *
                                sizeof(float)),
      .cluster_blocks = clusters && !kUpdateOnly ? blocks_per_head : 0};
  return LaunchOverlapping("launch of the delta rule",
                           RowsKernelOf<kUpdateOnly>(args.shape.key_dim), shape, stream, args);
}

}  // namespace

absl::Status LaunchGdnWindow(const GpuGdnWindowArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnWindow(args));
  return LaunchRows<false>({.pass = args.pass,
                            .shape = args.shape,
                            .in = args.in,
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
                           .in = {},
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
                           .in = {},
                           .output = {},
                           .layer_begin = layer,
                           .segment_begin = 0,
                           .slices_per_block = 0},
                          std::min(pass.rows, kPassSegmentsMax), 1, stream);
}

}  // namespace hearth
