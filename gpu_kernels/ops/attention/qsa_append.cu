// Norm and rotation of queries and keys, the append to the caches, and the pooling of blocks: one
// launch, one warp for each head of each row.
#include <cuda_bf16.h>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kValuesPerLane = kQsaHeadDimMax / kWarpLanes;
constexpr uint32_t kRawValuesPerLane = kQsaIndexerDimMax / kWarpLanes;

struct KernelArgs {
  QsaAppendArgs a;
  float epsilon;
  KvFormat kv_format;
  uint32_t head_count, kv_head_count, head_dim, half_rotary;
  uint32_t indexer_head_count, indexer_head_dim, block_tokens;
};

// One head across a warp: lane l holds values l, 32 + l, ...; beyond `dim` they are zero.
struct Head {
  float x[kValuesPerLane];
};

__device__ Head LoadHead(const float* from, uint32_t dim) {
  Head head;
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    head.x[j] = i < dim ? from[i] : 0.0f;
  }
  return head;
}

struct NormAndRotation {
  const float* weight;
  const float* cos;  // (half_rotary)
  const float* sin;
  uint32_t dim;
  uint32_t half_rotary;
  float epsilon;
};

// What norm and rotation read besides the head, asked for before any of it is waited for. Value i
// of the head has angle i % half_rotary.
struct Factors {
  float weight[kValuesPerLane];
  float cos[kValuesPerLane];
  float sin[kValuesPerLane];
};

__device__ Factors LoadFactors(const NormAndRotation& r) {
  Factors f;
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    const uint32_t angle = i < r.half_rotary ? i : i - r.half_rotary;
    f.weight[j] = i < r.dim ? __ldg(r.weight + i) : 0.0f;
    f.cos[j] = i < 2 * r.half_rotary ? __ldg(r.cos + angle) : 1.0f;
    f.sin[j] = i < 2 * r.half_rotary ? __ldg(r.sin + angle) : 0.0f;
  }
  return f;
}

// In place; `shared` (kQsaHeadDimMax) belongs to the warp: rotation pairs values of two lanes.
__device__ void NormaliseAndRotate(const NormAndRotation& r, const Factors& f, float* shared,
                                   Head* head) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  float squares = 0;
#pragma unroll
  for (float x : head->x) squares = __fmaf_rn(x, x, squares);
  const float mean = __fdiv_rn(WarpSum(squares), static_cast<float>(r.dim));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, r.epsilon)));
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    head->x[j] = __fmul_rn(__fmul_rn(head->x[j], factor), __fadd_rn(1.0f, f.weight[j]));
    if (i < 2 * r.half_rotary) shared[i] = head->x[j];
  }
  __syncwarp();
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i >= 2 * r.half_rotary) continue;
    const bool first = i < r.half_rotary;
    const float other = __fmul_rn(shared[first ? i + r.half_rotary : i - r.half_rotary], f.sin[j]);
    head->x[j] = __fmaf_rn(head->x[j], f.cos[j], first ? -other : other);
  }
}

__device__ void StoreHead(const Head& head, uint32_t dim, float* to) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i < dim) to[i] = head.x[j];
  }
}

__device__ void StoreBf16(const Head& head, uint32_t dim, __nv_bfloat16* to) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i < dim) to[i] = __float2bfloat16_rn(head.x[j]);
  }
}

// One scale for the head: max|x| / 127, round half to even.
__device__ void StoreInt8(const Head& head, uint32_t dim, int8_t* to, float* scale) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  uint32_t magnitude_bits = 0;
#pragma unroll
  for (float x : head.x) magnitude_bits = max(magnitude_bits, __float_as_uint(x) & 0x7FFFFFFFu);
  const float s = QuantizationRatio(__reduce_max_sync(kEveryLane, magnitude_bits));
  if (lane == 0) *scale = s;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i < dim) to[i] = static_cast<int8_t>(QuantizeValue(head.x[j], s));
  }
}

__device__ void AppendHead(const KernelArgs& args, const Head& head, size_t at, std::byte* cache,
                           float* scales) {
  if (args.kv_format == KvFormat::kInt8) {
    StoreInt8(head, args.head_dim, reinterpret_cast<int8_t*>(cache) + at * args.head_dim,
              scales + at);
  } else {
    StoreBf16(head, args.head_dim, reinterpret_cast<__nv_bfloat16*>(cache) + at * args.head_dim);
  }
}

__device__ const float* RawKeyOf(const KernelArgs& args, uint32_t row) {
  return args.a.index + (size_t{row} * (args.indexer_head_count + 1) + args.indexer_head_count) *
                            args.indexer_head_dim;
}

// Mean of the raw keys of the block of `row`, which the pass completes; norm; rotation at its first
// position. Keys before the segment's first row come from the ring.
__device__ void PoolBlock(const KernelArgs& args, const GpuSegment& segment,
                          const GpuLayerState& state, uint32_t row, float* shared) {
  const uint32_t dim = args.indexer_head_dim;
  const uint32_t block = (segment.base + (row - segment.row_begin)) / args.block_tokens;
  const NormAndRotation rotation = {args.a.index_k_norm,
                                    args.a.block_cos + size_t{row} * args.half_rotary,
                                    args.a.block_sin + size_t{row} * args.half_rotary,
                                    dim,
                                    args.half_rotary,
                                    args.epsilon};
  const Factors factors = LoadFactors(rotation);
  Head key = {};
#pragma unroll 4
  for (uint32_t i = 0; i < args.block_tokens; ++i) {
    const uint32_t position = block * args.block_tokens + i;
    const float* raw = position < segment.base
                           ? state.raw_keys + size_t{position & (args.a.pass.ring_rows - 1)} * dim
                           : RawKeyOf(args, segment.row_begin + (position - segment.base));
    const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
    for (uint32_t j = 0; j < kRawValuesPerLane; ++j) {
      const uint32_t d = j * kWarpLanes + lane;
      if (d < dim) key.x[j] = __fadd_rn(key.x[j], raw[d]);
    }
  }
#pragma unroll
  for (float& x : key.x) x = __fdiv_rn(x, static_cast<float>(args.block_tokens));
  NormaliseAndRotate(rotation, factors, shared, &key);
  StoreHead(key, dim, state.block_keys + size_t{block} * dim);
}

__device__ void StoreRawKey(const KernelArgs& args, const GpuSegment& segment,
                            const GpuLayerState& state, uint32_t row) {
  const uint32_t slot = (segment.base + (row - segment.row_begin)) & (args.a.pass.ring_rows - 1);
  StoreHead(LoadHead(RawKeyOf(args, row), args.indexer_head_dim), args.indexer_head_dim,
            state.raw_keys + size_t{slot} * args.indexer_head_dim);
}

// A block that an earlier pass has begun is pooled by the warp of the segment's first row. Where
// the rows of the segment could overwrite what it reads, the same warp writes the ring, afterwards;
// elsewhere each row writes its own key.
__device__ void AppendRawKey(const KernelArgs& args, const GpuSegment& segment, uint32_t row,
                             float* shared) {
  const GpuLayerState state = segment.layers[args.a.layer];
  const uint32_t i = row - segment.row_begin;
  const uint32_t ring_rows = args.a.pass.ring_rows;
  const bool alone = segment.rows + args.block_tokens <= ring_rows;
  if (alone) StoreRawKey(args, segment, state, row);
  if ((segment.base + i + 1) % args.block_tokens == 0 && i + 1 >= args.block_tokens) {
    PoolBlock(args, segment, state, row, shared);
    __syncwarp();
  }
  if (i != 0) return;
  const uint32_t begun = segment.base % args.block_tokens;
  if (begun != 0 && begun + segment.rows >= args.block_tokens) {
    PoolBlock(args, segment, state, row, shared);
    __syncwarp();
  }
  if (alone) return;
  const uint32_t first = segment.rows > ring_rows ? segment.rows - ring_rows : 0;
  for (uint32_t r = first; r < segment.rows; ++r) {
    StoreRawKey(args, segment, state, segment.row_begin + r);
  }
}

// A head of a projection in place: queries of attention and of the indexer.
__device__ void RotateInPlace(const NormAndRotation& rotation, float* x, float* shared) {
  const Factors factors = LoadFactors(rotation);
  Head head = LoadHead(x, rotation.dim);
  NormaliseAndRotate(rotation, factors, shared, &head);
  StoreHead(head, rotation.dim, x);
}

__device__ void AppendKeyOrValue(const KernelArgs& args, const GpuSegment* segments, uint32_t row,
                                 uint32_t item, const NormAndRotation& rotation, float* shared) {
  const bool is_key = item < args.kv_head_count;
  const uint32_t kv_head = is_key ? item : item - args.kv_head_count;
  const float* const from = is_key ? args.a.k : args.a.v;
  Head head =
      LoadHead(from + (size_t{row} * args.kv_head_count + kv_head) * args.head_dim, args.head_dim);
  const GpuSegment segment = segments[args.a.pass.row_segment[row]];
  const GpuLayerState state = segment.layers[args.a.layer];
  if (is_key) {
    const Factors factors = LoadFactors(rotation);
    NormaliseAndRotate(rotation, factors, shared, &head);
  }
  const size_t position = segment.base + (row - segment.row_begin);
  AppendHead(args, head, position * args.kv_head_count + kv_head, is_key ? state.k : state.v,
             is_key ? state.k_scale : state.v_scale);
}

// grid: (rows, items of a row / kWarps). Items: query heads, key heads, value heads, indexer
// queries, the raw key.
__global__ void __launch_bounds__(kWarps* kWarpLanes) QsaAppendKernel(const KernelArgs args) {
  __shared__ float shared_of_warps[kWarps][kQsaHeadDimMax];
  const uint32_t warp = threadIdx.x / kWarpLanes;
  float* const shared = shared_of_warps[warp];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = blockIdx.x;
  uint32_t item = blockIdx.y * kWarps + warp;
  const QsaAppendArgs& a = args.a;
  NormAndRotation rotation = {a.q_norm,
                              a.cos + size_t{row} * args.half_rotary,
                              a.sin + size_t{row} * args.half_rotary,
                              args.head_dim,
                              args.half_rotary,
                              args.epsilon};
  if (item < args.head_count) {
    RotateInPlace(rotation, a.qg + (size_t{row} * args.head_count + item) * 2 * args.head_dim,
                  shared);
    return;
  }
  item -= args.head_count;
  if (item < 2 * args.kv_head_count) {
    rotation.weight = a.k_norm;
    AppendKeyOrValue(args, a.pass.segments, row, item, rotation, shared);
    return;
  }
  item -= 2 * args.kv_head_count;
  if (item < args.indexer_head_count) {
    rotation.weight = a.index_q_norm;
    rotation.dim = args.indexer_head_dim;
    const size_t at = size_t{row} * (args.indexer_head_count + 1) + item;
    RotateInPlace(rotation, a.index + at * args.indexer_head_dim, shared);
    return;
  }
  if (item == args.indexer_head_count) {
    const GpuSegment segment = a.pass.segments[a.pass.row_segment[row]];
    AppendRawKey(args, segment, row, shared);
  }
}

}  // namespace

absl::Status LaunchQsaAppend(const QsaDesc& desc, const QsaAppendArgs& args,
                             CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const AttentionGeometry& g = desc.attention;
  const uint32_t items = g.head_count + 2 * g.kv_head_count + g.indexer_head_count + 1;
  const KernelArgs kernel_args = {.a = args,
                                  .epsilon = desc.norm_epsilon,
                                  .kv_format = desc.kv_format,
                                  .head_count = g.head_count,
                                  .kv_head_count = g.kv_head_count,
                                  .head_dim = g.head_dim,
                                  .half_rotary = g.rotary_dim / 2,
                                  .indexer_head_count = g.indexer_head_count,
                                  .indexer_head_dim = g.indexer_head_dim,
                                  .block_tokens = g.block_tokens};
  const dim3 grid(args.pass.rows, (items + kWarps - 1) / kWarps);
  return LaunchOverlapping("launch of the attention's append", QsaAppendKernel,
                           {.blocks = grid, .threads = kWarps * kWarpLanes}, stream, kernel_args);
}

}  // namespace hearth
