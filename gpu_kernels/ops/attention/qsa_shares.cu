// Softmax attention of one row's query heads of one K/V head over a share of its positions, on
// tensor cores: the heads are the 16 rows of a product (fewer heads leave rows at zero), so that
// each key and value is read once for all of them.
//
// A tile is kQsaSplitPositions positions. Four warps: for s = q . k each takes a quarter of the
// positions, for the softmax a quarter of the heads, for p . v a quarter of the dimensions. Keys
// and values each have one buffer: the next tile's keys come in while the values are used, and the
// other way round.
#include <algorithm>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/kv_tile.cuh"
#include "gpu_kernels/ops/attention/mma.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_attend.cuh"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kTile = kQsaSplitPositions;
constexpr uint32_t kHeads = kQsaGroupMax;
static_assert(kTile == 16 * kWarps && kHeads == 4 * kWarps && kTile == 2 * kWarpLanes);

// Shared memory; strides leave rows 16-byte aligned and spread them over the banks. kDim: head_dim
// rounded up to a multiple of 32 that a kernel exists for.
template <int kDim>
struct Shared {
  static constexpr uint32_t kStride = kDim + 8;
  static constexpr uint32_t kProbabilityStride = kTile + 8;
  alignas(16) __nv_bfloat16 k[kTile * kStride];
  alignas(16) __nv_bfloat16 v[kTile * kStride];
  alignas(16) __nv_bfloat16 q[2][kHeads * kStride];  // high and low terms
  alignas(16) __nv_bfloat16 p[2][kHeads * kProbabilityStride];
  float s[kHeads][kTile + 4];
  float shrink[kHeads];         // of earlier sums, when a tile raises the maximum
  uint32_t position[2][kTile];  // of this tile and of the next
  float k_scale[kTile];
  float v_scale[kTile];
};

struct RowHead {
  const GpuLayerState* state;
  QsaPositions positions;
  uint32_t row;
  uint32_t kv_head;
  uint32_t group;  // query heads
};

// Heads of the row as two bf16 terms; rows and dimensions that do not exist are zeros.
template <int kDim>
__device__ void StageQueries(const QsaAttendKernelArgs& args, const RowHead& rh,
                             Shared<kDim>* shared) {
  constexpr uint32_t kStride = Shared<kDim>::kStride;
  for (uint32_t i = threadIdx.x; i < kHeads * kDim / 4; i += kThreads) {
    const uint32_t head = i / (kDim / 4);
    const uint32_t d = i % (kDim / 4) * 4;
    float4 x = {0, 0, 0, 0};
    if (head < rh.group && d < args.head_dim) {
      const size_t at = size_t{rh.row} * args.head_count + rh.kv_head * rh.group + head;
      x = *reinterpret_cast<const float4*>(args.qg + at * 2 * args.head_dim + d);
    }
    StoreTerms(x, &shared->q[0][head * kStride + d], &shared->q[1][head * kStride + d]);
  }
}

// Positions of the tile that starts at list entry `begin`; kNoPosition beyond the list.
template <int kDim>
__device__ void StagePositions(const RowHead& rh, uint32_t begin, uint32_t end, uint32_t* to) {
  for (uint32_t i = threadIdx.x; i < kTile; i += kThreads) {
    to[i] = begin + i < end ? rh.positions.At(begin + i) : kNoPosition;
  }
}

// s of 16 heads and this warp's 16 positions.
template <int kDim, KvFormat kFormat>
__device__ void Scores(const QsaAttendKernelArgs& args, Shared<kDim>* shared) {
  constexpr uint32_t kStride = Shared<kDim>::kStride;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first = threadIdx.x / kWarpLanes * 16;
  MmaSum sums[2][2];  // of each term, of each eight positions
#pragma unroll 4
  for (uint32_t d = 0; d < kDim; d += 16) {
    const MmaB k = LoadBFromRows(shared->k + first * kStride + d, kStride);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const MmaA q = LoadA(shared->q[t] + d, kStride);
      Multiply(q, k.x[0], k.x[1], &sums[t][0]);
      Multiply(q, k.x[2], k.x[3], &sums[t][1]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t column = first + n * 8 + lane % 4 * 2 + i % 2;
      float s = __fmul_rn(__fadd_rn(sums[0][n].x[i], sums[1][n].x[i]), args.softmax_scale);
      if constexpr (kFormat == KvFormat::kInt8) s = __fmul_rn(s, shared->k_scale[column]);
      shared->s[lane / 4 + i / 2 * 8][column] = s;
    }
  }
}

__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kEveryLane, x, offset));
  }
  return x;
}

struct Softmax {  // of one head so far
  float max = -INFINITY;
  float sum = 0;
};

// p of this warp's four heads, `count` >= 1 positions; two a lane.
template <int kDim, KvFormat kFormat>
__device__ void Probabilities(uint32_t count, Shared<kDim>* shared, Softmax (&softmax)[4]) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t h = 0; h < 4; ++h) {
    const uint32_t head = threadIdx.x / kWarpLanes * 4 + h;
    float s[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = i * kWarpLanes + lane;
      s[i] = column < count ? shared->s[head][column] : -INFINITY;
    }
    const float max = fmaxf(softmax[h].max, WarpMax(fmaxf(s[0], s[1])));
    const float shrink = softmax[h].max == -INFINITY ? 0.0f : ExpOf(__fsub_rn(softmax[h].max, max));
    float p[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = i * kWarpLanes + lane;
      p[i] = column < count ? ExpOf(__fsub_rn(s[i], max)) : 0.0f;
      float weight = p[i];
      if constexpr (kFormat == KvFormat::kInt8) {
        weight = __fmul_rn(weight, shared->v_scale[column]);
      }
      const Bf16Terms terms = SplitBf16(weight);
      shared->p[0][head * Shared<kDim>::kProbabilityStride + column] = terms.high;
      shared->p[1][head * Shared<kDim>::kProbabilityStride + column] = terms.low;
    }
    const float sum = WarpSum(__fadd_rn(p[0], p[1]));
    softmax[h].sum = __fmaf_rn(softmax[h].sum, shrink, sum);
    softmax[h].max = max;
    if (lane == 0) shared->shrink[head] = shrink;
  }
}

// Dimensions of a warp: a quarter, at least 16.
template <int kDim>
constexpr int kWarpDims = kDim / static_cast<int>(kWarps) > 16 ? kDim / static_cast<int>(kWarps)
                                                               : 16;

template <int kDim>
struct Output {  // 16 heads, kWarpDims dimensions
  MmaSum of[kWarpDims<kDim> / 8];
};

// out = out * shrink + p . v
template <int kDim>
__device__ void AddValues(const Shared<kDim>& shared, Output<kDim>* out) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first = threadIdx.x / kWarpLanes * kWarpDims<kDim>;
  if (first >= kDim) return;
  const float shrink[2] = {shared.shrink[lane / 4], shared.shrink[lane / 4 + 8]};
#pragma unroll
  for (MmaSum& sum : out->of) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.x[i] = __fmul_rn(sum.x[i], shrink[i / 2]);
  }
#pragma unroll
  for (uint32_t k = 0; k < kTile; k += 16) {
    MmaA p[2];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      p[t] = LoadA(shared.p[t] + k, Shared<kDim>::kProbabilityStride);
    }
#pragma unroll
    for (int n = 0; n < kWarpDims<kDim> / 16; ++n) {
      const MmaB v = LoadBFromColumns(shared.v + k * Shared<kDim>::kStride + first + n * 16,
                                      Shared<kDim>::kStride);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        Multiply(p[t], v.x[0], v.x[1], &out->of[2 * n]);
        Multiply(p[t], v.x[2], v.x[3], &out->of[2 * n + 1]);
      }
    }
  }
}

template <int kDim>
__device__ void StoreShare(const QsaAttendKernelArgs& args, const RowHead& rh, uint32_t share,
                           const Softmax (&softmax)[4], const Output<kDim>& out) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warp = threadIdx.x / kWarpLanes;
  const size_t at =
      (size_t{rh.row} * args.share_count + share) * args.head_count + size_t{rh.kv_head} * rh.group;
#pragma unroll
  for (uint32_t h = 0; h < 4; ++h) {
    if (lane == 0 && warp * 4 + h < rh.group) {
      args.softmax[at + warp * 4 + h] = {softmax[h].max, softmax[h].sum};
    }
  }
#pragma unroll
  for (int n = 0; n < kWarpDims<kDim> / 8; ++n) {
    const uint32_t d = warp * kWarpDims<kDim> + n * 8 + lane % 4 * 2;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t head = lane / 4 + half * 8;
      if (head >= rh.group || d >= args.head_dim) continue;
      *reinterpret_cast<float2*>(args.partial + (at + head) * args.head_dim + d) = {
          out.of[n].x[2 * half], out.of[n].x[2 * half + 1]};
    }
  }
}

// List entries [begin, end) of one row: one share.
template <int kDim, KvFormat kFormat>
__device__ void AttendShare(const QsaAttendKernelArgs& args, const RowHead& rh, uint32_t begin,
                            uint32_t end, uint32_t share, Shared<kDim>* shared) {
  const GpuLayerState& state = *rh.state;
  const auto load = [&](const std::byte* cache, const float* scales, const uint32_t* positions,
                        __nv_bfloat16* to, float* to_scales) {
    LoadKvTile<kDim, Shared<kDim>::kStride, kTile, kThreads, kFormat>(
        {cache, scales, args.kv_head_count, rh.kv_head, args.head_dim},
        [&](uint32_t i) { return positions[i]; }, to, to_scales);
    CommitCopies();
  };
  const auto load_keys = [&](const uint32_t* positions) {
    load(state.k, state.k_scale, positions, shared->k, shared->k_scale);
  };
  const auto load_values = [&](const uint32_t* positions) {
    load(state.v, state.v_scale, positions, shared->v, shared->v_scale);
  };
  Softmax softmax[4];
  Output<kDim> out;
  StagePositions<kDim>(rh, begin, end, shared->position[0]);
  __syncthreads();
  load_keys(shared->position[0]);
  load_values(shared->position[0]);
  StageQueries<kDim>(args, rh, shared);
  uint32_t parity = 0;
  for (uint32_t at = begin; at < end; at += kTile, parity ^= 1) {
    const bool more = at + kTile < end;
    uint32_t* const next = shared->position[parity ^ 1];
    if (more) StagePositions<kDim>(rh, at + kTile, end, next);
    WaitCopies<1>();  // keys
    __syncthreads();
    Scores<kDim, kFormat>(args, shared);
    __syncthreads();
    if (more) load_keys(next);
    Probabilities<kDim, kFormat>(min(kTile, end - at), shared, softmax);
    if (more) {
      WaitCopies<1>();  // values
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    AddValues<kDim>(*shared, &out);
    if (more) {
      __syncthreads();
      load_values(next);
    }
  }
  StoreShare<kDim>(args, rh, share, softmax, out);
}

// grid: (rows, K/V heads, shares). Shares beyond the row's positions have nothing to do.
template <int kDim, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads) QsaSharesKernel(const QsaAttendKernelArgs args) {
  extern __shared__ uint4 memory[];
  const uint32_t row = blockIdx.x;
  const QsaRowPlace place = PlaceOf(args.pass, args.layer, row);
  const RowHead rh = {place.state,
                      QsaPositions(place.position, args.chosen + size_t{row} * args.block_count_max,
                                   args.block_count_max, args.block_tokens),
                      row, blockIdx.y, args.head_count / args.kv_head_count};
  if (args.dense_apart && rh.positions.blocks == nullptr) return;
  const uint32_t share_positions = args.tiles_per_share * kTile;
  const uint32_t begin = blockIdx.z * share_positions;
  if (begin >= rh.positions.count) return;
  const uint32_t end = min(begin + share_positions, rh.positions.count);
  AttendShare<kDim, kFormat>(args, rh, begin, end, blockIdx.z,
                             reinterpret_cast<Shared<kDim>*>(memory));
}

template <int kDim, KvFormat kFormat>
absl::Status Enqueue(const QsaAttendKernelArgs& args, cudaStream_t stream) {
  constexpr uint32_t kSharedBytes = sizeof(Shared<kDim>);
  const auto kernel = QsaSharesKernel<kDim, kFormat>;
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "shared memory of attention"));
  const dim3 grid(args.pass.rows, args.kv_head_count, args.share_count);
  kernel<<<grid, kThreads, kSharedBytes, stream>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of attention");
}

template <int kDim>
absl::Status EnqueueFormat(const QsaAttendKernelArgs& args, cudaStream_t stream) {
  if (args.kv_format == KvFormat::kInt8) return Enqueue<kDim, KvFormat::kInt8>(args, stream);
  return Enqueue<kDim, KvFormat::kBf16>(args, stream);
}

}  // namespace

absl::Status EnqueueQsaShares(const QsaAttendKernelArgs& args, cudaStream_t stream) {
  if (args.head_dim <= 32) return EnqueueFormat<32>(args, stream);
  if (args.head_dim <= 64) return EnqueueFormat<64>(args, stream);
  if (args.head_dim <= 128) return EnqueueFormat<128>(args, stream);
  return EnqueueFormat<256>(args, stream);
}

}  // namespace hearth
