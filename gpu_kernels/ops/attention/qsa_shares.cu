// Softmax attention of one row's query heads of one K/V head over a share of its positions, on
// tensor cores: the heads are the 16 rows of a product (fewer heads leave rows at zero), so that
// each key and value is read once for all of them.
//
// A tile is kKvTile positions. Eight warps: for s = q . k each takes a quarter of the positions and
// half of the dimensions, for the softmax an eighth of the heads, for p . v an eighth of the
// dimensions. Queries stay in registers. Keys and values each have one buffer: the next tile's keys
// come in while the values are used, and the other way round.
#include <algorithm>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/bf16_mma.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/attention/kv_tile.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_attend.cuh"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kTile = kQsaSplitPositions;
constexpr uint32_t kHeads = kQsaGroupMax;
constexpr uint32_t kHalves = 2;  // of the dimensions of a score
constexpr uint32_t kHeadsPerWarp = kHeads / kWarps;
static_assert(kTile == kKvTile && kTile == 16 * kWarps / kHalves && kTile == 2 * kWarpLanes);

// kDim: head_dim rounded up to a multiple of 32 that a kernel exists for.
template <int kDim, KvFormat kFormat>
struct Shared {
  static constexpr uint32_t kProbabilityStride = kTile + 8;
  KvTile<kDim, kFormat> k;
  KvTile<kDim, kFormat> v;
  alignas(16) __nv_bfloat16 p[2][kHeads * kProbabilityStride];  // high and low terms
  float s[kHalves][kHeads][kTile + 4];
  float shrink[kHeads];         // of earlier sums, when a tile raises the maximum
  uint32_t position[2][kTile];  // of this tile and of the next
};

struct RowHead {
  const GpuLayerState* state;
  QsaPositions positions;
  uint32_t row;
  uint32_t kv_head;
  uint32_t group;  // query heads
};

// This warp's half of the dimensions, as two bf16 terms. Heads and dimensions that do not exist
// are zeros.
template <int kDim>
struct Queries {
  static constexpr int kSteps = kDim / static_cast<int>(kHalves) / 16;
  MmaA high[kSteps];
  MmaA low[kSteps];
};

template <int kDim, KvFormat kFormat>
__device__ inline Queries<kDim> LoadQueries(const QsaAttendKernelArgs& args, const RowHead& rh) {
  // Dimensions of the columns that a lane holds, as KeyOperand has them (see QueryColumn).
  constexpr uint32_t kPairDims = kFormat == KvFormat::kInt8 ? 4 : 2;
  constexpr uint32_t kSecondDims = kFormat == KvFormat::kInt8 ? 2 : 8;  // column 8 from column 0
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t half = threadIdx.x / kWarpLanes % kHalves;
  Queries<kDim> queries;
#pragma unroll
  for (int step = 0; step < Queries<kDim>::kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // of the operand: rows lane / 4 and eight below, twice
      const uint32_t head = lane / 4 + i % 2 * 8;
      const uint32_t d =
          half * (kDim / kHalves) + step * 16 + lane % 4 * kPairDims + i / 2 * kSecondDims;
      float2 x = {0, 0};
      if (head < rh.group && d < args.head_dim) {
        const size_t at = size_t{rh.row} * args.head_count + rh.kv_head * rh.group + head;
        x = *reinterpret_cast<const float2*>(args.qg + at * 2 * args.head_dim + d);
      }
      const PairTerms terms = SplitPair(x.x, x.y);
      queries.high[step].x[i] = terms.high;
      queries.low[step].x[i] = terms.low;
    }
  }
  return queries;
}

// Positions of the tile that starts at list entry `begin`; kNoPosition beyond the list.
__device__ inline void StagePositions(const RowHead& rh, uint32_t begin, uint32_t end,
                                      uint32_t* to) {
  if (threadIdx.x >= kTile) return;
  const uint32_t i = begin + threadIdx.x;
  to[threadIdx.x] = i < end ? rh.positions.At(i) : kNoPosition;
}

// q . k of 16 heads, this warp's 16 positions and half of the dimensions, times the scales.
template <int kDim, KvFormat kFormat>
__device__ inline void Scores(float softmax_scale, const Queries<kDim>& queries,
                              Shared<kDim, kFormat>* shared) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t half = threadIdx.x / kWarpLanes % kHalves;
  const uint32_t first = threadIdx.x / kWarpLanes / kHalves * 16;
  MmaSum high[2];  // of each eight positions
  MmaSum low[2];
#pragma unroll
  for (int step = 0; step < Queries<kDim>::kSteps; ++step) {
    const MmaB k = KeyOperand(shared->k, first, half * (kDim / kHalves) + step * 16);
    Multiply(queries.high[step], k.x[0], k.x[1], &high[0]);
    Multiply(queries.high[step], k.x[2], k.x[3], &high[1]);
    Multiply(queries.low[step], k.x[0], k.x[1], &low[0]);
    Multiply(queries.low[step], k.x[2], k.x[3], &low[1]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t column = first + n * 8 + lane % 4 * 2;
      float s[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[i] = __fmul_rn(__fadd_rn(high[n].x[2 * row + i], low[n].x[2 * row + i]), softmax_scale);
        if constexpr (kFormat == KvFormat::kInt8) {
          s[i] = __fmul_rn(s[i], shared->k.scale[column + i]);
        }
      }
      *reinterpret_cast<float2*>(&shared->s[half][lane / 4 + row * 8][column]) = {s[0], s[1]};
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

// p of this warp's heads over `count` >= 1 positions, two neighbours a lane.
template <int kDim, KvFormat kFormat>
__device__ inline void Probabilities(uint32_t count, Shared<kDim, kFormat>* shared,
                                     Softmax (&softmax)[kHeadsPerWarp]) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t h = 0; h < kHeadsPerWarp; ++h) {
    const uint32_t head = threadIdx.x / kWarpLanes * kHeadsPerWarp + h;
    const float2 a = *reinterpret_cast<const float2*>(&shared->s[0][head][2 * lane]);
    const float2 b = *reinterpret_cast<const float2*>(&shared->s[1][head][2 * lane]);
    const float s[2] = {2 * lane < count ? __fadd_rn(a.x, b.x) : -INFINITY,
                        2 * lane + 1 < count ? __fadd_rn(a.y, b.y) : -INFINITY};
    const float max = fmaxf(softmax[h].max, WarpMax(fmaxf(s[0], s[1])));
    const float shrink = softmax[h].max == -INFINITY ? 0.0f : ExpOf(__fsub_rn(softmax[h].max, max));
    float weight[2];
    float p[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = 2 * lane + i;
      p[i] = column < count ? ExpOf(__fsub_rn(s[i], max)) : 0.0f;
      weight[i] = p[i];
      if constexpr (kFormat == KvFormat::kInt8) {
        weight[i] = __fmul_rn(weight[i], shared->v.scale[column]);
      }
    }
    const PairTerms terms = SplitPair(weight[0], weight[1]);
    const uint32_t at = head * Shared<kDim, kFormat>::kProbabilityStride + 2 * lane;
    *reinterpret_cast<uint32_t*>(&shared->p[0][at]) = terms.high;
    *reinterpret_cast<uint32_t*>(&shared->p[1][at]) = terms.low;
    const float sum = WarpSum(__fadd_rn(p[0], p[1]));
    softmax[h].sum = __fmaf_rn(softmax[h].sum, shrink, sum);
    softmax[h].max = max;
    if (lane == 0) shared->shrink[head] = shrink;
  }
}

// Dimensions of a warp: an eighth, at least 16.
template <int kDim>
constexpr int kWarpDims = kDim / static_cast<int>(kWarps) > 16 ? kDim / static_cast<int>(kWarps)
                                                               : 16;

template <int kDim>
struct Output {  // 16 heads, kWarpDims dimensions
  MmaSum of[kWarpDims<kDim> / 8];
};

// out = out * shrink + p . v
template <int kDim, KvFormat kFormat>
__device__ inline void AddValues(const Shared<kDim, kFormat>& shared, Output<kDim>* out) {
  constexpr uint32_t kStride = Shared<kDim, kFormat>::kProbabilityStride;
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
    const MmaA high = LoadA(shared.p[0] + k, kStride);
    const MmaA low = LoadA(shared.p[1] + k, kStride);
#pragma unroll
    for (int n = 0; n < kWarpDims<kDim> / 8; n += 2) {
      const MmaB v = ValueOperand(shared.v, k, first + n * 8);
      Multiply(high, v.x[0], v.x[1], &out->of[n]);
      Multiply(high, v.x[2], v.x[3], &out->of[n + 1]);
      Multiply(low, v.x[0], v.x[1], &out->of[n]);
      Multiply(low, v.x[2], v.x[3], &out->of[n + 1]);
    }
  }
}

template <int kDim, KvFormat kFormat>
__device__ inline void StoreShare(const QsaAttendKernelArgs& args, const RowHead& rh,
                                  uint32_t share, const Softmax (&softmax)[kHeadsPerWarp],
                                  const Output<kDim>& out) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warp = threadIdx.x / kWarpLanes;
  const size_t at =
      (size_t{rh.row} * args.share_count + share) * args.head_count + size_t{rh.kv_head} * rh.group;
#pragma unroll
  for (uint32_t h = 0; h < kHeadsPerWarp; ++h) {
    const uint32_t head = warp * kHeadsPerWarp + h;
    if (lane == 0 && head < rh.group) args.softmax[at + head] = {softmax[h].max, softmax[h].sum};
  }
  const uint32_t first = warp * kWarpDims<kDim>;
  if (first >= kDim) return;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t head = lane / 4 + half * 8;
    if (head >= rh.group) continue;
#pragma unroll
    for (int n = 0; n < kWarpDims<kDim> / 8; n += 2) {
      StoreSums<kFormat>(out.of[n], out.of[n + 1], half, first + n * 8, args.head_dim,
                         args.partial + (at + head) * args.head_dim);
    }
  }
}

// List entries [begin, end) of one row: one share. `early`: keys and values of its first tile are
// asked for while the launch before this one runs, which writes neither.
template <int kDim, KvFormat kFormat>
__device__ void AttendShare(const QsaAttendKernelArgs& args, const RowHead& rh, uint32_t begin,
                            uint32_t end, uint32_t share, bool early,
                            Shared<kDim, kFormat>* shared) {
  if (!early) AwaitLaunchBefore();
  const GpuLayerState state = *rh.state;
  const auto load = [&](const std::byte* cache, const float* scales, const uint32_t* positions,
                        KvTile<kDim, kFormat>* to) {
    LoadKvTile<kThreads>(
        {cache, scales, args.kv_head_count, rh.kv_head, args.head_dim},
        [&](uint32_t i) { return positions[i]; }, to);
    CommitCopies();
  };
  Softmax softmax[kHeadsPerWarp];
  Output<kDim> out;
  StagePositions(rh, begin, end, shared->position[0]);
  __syncthreads();
  load(state.k, state.k_scale, shared->position[0], &shared->k);
  load(state.v, state.v_scale, shared->position[0], &shared->v);
  if (early) AwaitLaunchBefore();
  AllowLaunchAfter();
  const Queries<kDim> queries = LoadQueries<kDim, kFormat>(args, rh);
  uint32_t parity = 0;
  for (uint32_t at = begin; at < end; at += kTile, parity ^= 1) {
    const bool more = at + kTile < end;
    uint32_t* const next = shared->position[parity ^ 1];
    if (more) StagePositions(rh, at + kTile, end, next);
    WaitCopies<1>();  // keys
    __syncthreads();
    Scores(args.softmax_scale, queries, shared);
    if (more) {
      __syncthreads();
      load(state.k, state.k_scale, next, &shared->k);
      WaitCopies<1>();  // values
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    Probabilities(min(kTile, end - at), shared, softmax);
    __syncthreads();
    AddValues(*shared, &out);
    if (more) {
      __syncthreads();
      load(state.v, state.v_scale, next, &shared->v);
    }
  }
  StoreShare<kDim, kFormat>(args, rh, share, softmax, out);
}

// grid: (rows, K/V heads, shares). Shares beyond the row's positions have nothing to do.
template <int kDim, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2) QsaSharesKernel(const QsaAttendKernelArgs args) {
  extern __shared__ uint4 memory[];
  const uint32_t row = blockIdx.x;
  const QsaRowPlace place = PlaceOf(args.pass, args.layer, row);
  const RowHead rh = {place.state,
                      QsaPositions(place.position, args.chosen + size_t{row} * args.block_count_max,
                                   args.block_count_max, args.block_tokens),
                      row, blockIdx.y, args.head_count / args.kv_head_count};
  if (args.dense_apart && rh.positions.blocks == nullptr) {
    AwaitLaunchBefore();  // also for those who wait for this launch
    return;
  }
  const uint32_t share_positions = args.tiles_per_share * kTile;
  const uint32_t begin = blockIdx.z * share_positions;
  if (begin >= rh.positions.count) return;
  const uint32_t end = min(begin + share_positions, rh.positions.count);
  // The launches of this layer before this one write positions of the pass alone, and the choice.
  const bool early =
      rh.positions.blocks == nullptr && min(begin + kTile, end) <= PassBegin(args.pass, row);
  AttendShare<kDim, kFormat>(args, rh, begin, end, blockIdx.z, early,
                             reinterpret_cast<Shared<kDim, kFormat>*>(memory));
}

template <int kDim, KvFormat kFormat>
absl::Status Enqueue(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  constexpr uint32_t kSharedBytes = sizeof(Shared<kDim, kFormat>);
  const auto kernel = QsaSharesKernel<kDim, kFormat>;
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "shared memory of attention"));
  const dim3 grid(args.pass.rows, args.kv_head_count, args.share_count);
  return LaunchOverlapping("launch of attention", kernel,
                           {.blocks = grid, .threads = kThreads, .shared_bytes = kSharedBytes},
                           stream, args);
}

template <int kDim>
absl::Status EnqueueFormat(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  if (args.kv_format == KvFormat::kInt8) return Enqueue<kDim, KvFormat::kInt8>(args, stream);
  return Enqueue<kDim, KvFormat::kBf16>(args, stream);
}

}  // namespace

absl::Status EnqueueQsaShares(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  if (args.head_dim <= 32) return EnqueueFormat<32>(args, stream);
  if (args.head_dim <= 64) return EnqueueFormat<64>(args, stream);
  if (args.head_dim <= 128) return EnqueueFormat<128>(args, stream);
  return EnqueueFormat<256>(args, stream);
}

}  // namespace hearth
