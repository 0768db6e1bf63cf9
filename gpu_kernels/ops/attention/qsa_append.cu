// Norm and rotation of queries and keys, the append to the caches, and the pooling of blocks: one
// launch, one warp for each head of each row.
#include <cuda_bf16.h>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kValuesPerLane = kQsaHeadDimMax / kWarpLanes;

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

// In place; `shared` (kQsaHeadDimMax) belongs to the warp: rotation pairs values of two lanes.
__device__ void NormaliseAndRotate(const NormAndRotation& r, float* shared, Head* head) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  float squares = 0;
#pragma unroll
  for (float x : head->x) squares = __fmaf_rn(x, x, squares);
  const float mean = __fdiv_rn(WarpSum(squares), static_cast<float>(r.dim));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, r.epsilon)));
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i >= r.dim) continue;
    head->x[j] = __fmul_rn(__fmul_rn(head->x[j], factor), __fadd_rn(1.0f, r.weight[i]));
    if (i < 2 * r.half_rotary) shared[i] = head->x[j];
  }
  __syncwarp();
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i >= 2 * r.half_rotary) continue;
    const bool first = i < r.half_rotary;
    const uint32_t angle = first ? i : i - r.half_rotary;
    const float other = __fmul_rn(shared[first ? i + r.half_rotary : angle], r.sin[angle]);
    head->x[j] = __fmaf_rn(head->x[j], r.cos[angle], first ? -other : other);
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
  const float s = __fdiv_rn(__uint_as_float(__reduce_max_sync(kEveryLane, magnitude_bits)), 127.0f);
  if (lane == 0) *scale = s;
#pragma unroll
  for (uint32_t j = 0; j < kValuesPerLane; ++j) {
    const uint32_t i = j * kWarpLanes + lane;
    if (i >= dim) continue;
    float rounded = s != 0 ? rintf(__fdiv_rn(head.x[j], s)) : 0.0f;
    rounded = rounded > -127.0f ? rounded : -127.0f;
    rounded = rounded < 127.0f ? rounded : 127.0f;
    to[i] = static_cast<int8_t>(rounded);
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
__device__ void PoolBlock(const KernelArgs& args, const GpuSegment& segment, uint32_t row,
                          float* shared) {
  const GpuLayerState& state = segment.layers[args.a.layer];
  const uint32_t dim = args.indexer_head_dim;
  const uint32_t block = (segment.base + (row - segment.row_begin)) / args.block_tokens;
  Head key = {};
  for (uint32_t i = 0; i < args.block_tokens; ++i) {
    const uint32_t position = block * args.block_tokens + i;
    const float* raw = position < segment.base
                           ? state.raw_keys + size_t{position & (args.a.pass.ring_rows - 1)} * dim
                           : RawKeyOf(args, segment.row_begin + (position - segment.base));
    const Head one = LoadHead(raw, dim);
#pragma unroll
    for (uint32_t j = 0; j < kValuesPerLane; ++j) key.x[j] = __fadd_rn(key.x[j], one.x[j]);
  }
#pragma unroll
  for (float& x : key.x) x = __fdiv_rn(x, static_cast<float>(args.block_tokens));
  NormaliseAndRotate(
      {args.a.index_k_norm, args.a.block_cos + size_t{row} * args.half_rotary,
       args.a.block_sin + size_t{row} * args.half_rotary, dim, args.half_rotary, args.epsilon},
      shared, &key);
  StoreHead(key, dim, state.block_keys + size_t{block} * dim);
}

// The warp of a segment's first row also pools the block that an earlier pass has begun and then
// writes the ring: no other warp touches the ring, so that a prompt longer than it does not
// overwrite what is still to be read.
__device__ void AppendRawKey(const KernelArgs& args, const GpuSegment& segment, uint32_t row,
                             float* shared) {
  const uint32_t i = row - segment.row_begin;
  const uint32_t position = segment.base + i;
  if ((position + 1) % args.block_tokens == 0 && i + 1 >= args.block_tokens) {
    PoolBlock(args, segment, row, shared);
    __syncwarp();
  }
  if (i != 0) return;
  const uint32_t begun = segment.base % args.block_tokens;
  if (begun != 0 && begun + segment.rows >= args.block_tokens) {
    PoolBlock(args, segment, row, shared);
    __syncwarp();
  }
  const GpuLayerState& state = segment.layers[args.a.layer];
  const uint32_t ring_rows = args.a.pass.ring_rows;
  const uint32_t first = segment.rows > ring_rows ? segment.rows - ring_rows : 0;
  for (uint32_t r = first; r < segment.rows; ++r) {
    const Head raw = LoadHead(RawKeyOf(args, segment.row_begin + r), args.indexer_head_dim);
    StoreHead(
        raw, args.indexer_head_dim,
        state.raw_keys + size_t{(segment.base + r) & (ring_rows - 1)} * args.indexer_head_dim);
  }
}

// grid: (rows, items of a row / kWarps). Items: query heads, key heads, value heads, indexer
// queries, the raw key.
__global__ void __launch_bounds__(kWarps* kWarpLanes) QsaAppendKernel(const KernelArgs args) {
  __shared__ float shared_of_warps[kWarps][kQsaHeadDimMax];
  const uint32_t warp = threadIdx.x / kWarpLanes;
  float* const shared = shared_of_warps[warp];
  const uint32_t row = blockIdx.x;
  uint32_t item = blockIdx.y * kWarps + warp;
  const QsaAppendArgs& a = args.a;
  const GpuSegment& segment = a.pass.segments[a.pass.row_segment[row]];
  const float* const cos = a.cos + size_t{row} * args.half_rotary;
  const float* const sin = a.sin + size_t{row} * args.half_rotary;
  const uint32_t position = segment.base + (row - segment.row_begin);

  if (item < args.head_count) {
    float* const x = a.qg + (size_t{row} * args.head_count + item) * 2 * args.head_dim;
    Head head = LoadHead(x, args.head_dim);
    NormaliseAndRotate({a.q_norm, cos, sin, args.head_dim, args.half_rotary, args.epsilon}, shared,
                       &head);
    StoreHead(head, args.head_dim, x);
    return;
  }
  item -= args.head_count;
  if (item < 2 * args.kv_head_count) {
    const GpuLayerState& state = segment.layers[a.layer];
    const bool is_key = item < args.kv_head_count;
    const uint32_t kv_head = is_key ? item : item - args.kv_head_count;
    Head head = LoadHead(
        (is_key ? a.k : a.v) + (size_t{row} * args.kv_head_count + kv_head) * args.head_dim,
        args.head_dim);
    if (is_key) {
      NormaliseAndRotate({a.k_norm, cos, sin, args.head_dim, args.half_rotary, args.epsilon},
                         shared, &head);
    }
    AppendHead(args, head, size_t{position} * args.kv_head_count + kv_head,
               is_key ? state.k : state.v, is_key ? state.k_scale : state.v_scale);
    return;
  }
  item -= 2 * args.kv_head_count;
  if (item < args.indexer_head_count) {
    float* const x =
        a.index + (size_t{row} * (args.indexer_head_count + 1) + item) * args.indexer_head_dim;
    Head head = LoadHead(x, args.indexer_head_dim);
    NormaliseAndRotate(
        {a.index_q_norm, cos, sin, args.indexer_head_dim, args.half_rotary, args.epsilon}, shared,
        &head);
    StoreHead(head, args.indexer_head_dim, x);
    return;
  }
  if (item == args.indexer_head_count) AppendRawKey(args, segment, row, shared);
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
  QsaAppendKernel<<<grid, kWarps * kWarpLanes, 0, stream.get()>>>(kernel_args);
  return CudaStatus(cudaGetLastError(), "launch of the attention's append");
}

}  // namespace hearth
