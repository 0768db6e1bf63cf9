// Causal attention of a prompt's rows that attend to everything before them, on tensor cores. A
// block of threads takes neighbouring rows of one segment with all query heads of one K/V head:
// row times head make the rows of the products, so that a tile of keys and values is read once for
// all of them. Each warp owns 16 of these product rows and keeps their sums in registers; the
// probabilities go from one product into the next without leaving them.
#include <algorithm>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/bf16_mma.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/kv_tile.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_attend.cuh"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kProductRows = 16 * kWarps;
constexpr uint32_t kTile = kKvTile;
constexpr uint32_t kTileColumns = kTile / 8;

template <int kDim, KvFormat kFormat>
struct Shared {
  static constexpr uint32_t kStride = kDim + 8;
  alignas(16) __nv_bfloat16 q[2][kProductRows * kStride];  // high and low terms
  KvTile<kDim, kFormat> k;
  KvTile<kDim, kFormat> v;
};

// Rows [row_begin, row_end) of the pass, of one segment; product row m is row m / group, query head
// m % group of the K/V head.
struct Run {
  const GpuLayerState* state;
  uint32_t row_begin, row_end;
  uint32_t position;  // of the first row
  uint32_t kv_head, group;

  __device__ uint32_t product_rows() const { return (row_end - row_begin) * group; }
  __device__ uint32_t position_end() const { return position + (row_end - row_begin); }
};

template <int kDim, KvFormat kFormat>
__device__ void StageQueries(const QsaAttendKernelArgs& args, const Run& run,
                             Shared<kDim, kFormat>* shared) {
  using Column = QueryColumn<kFormat>;
  for (uint32_t i = threadIdx.x; i < kProductRows * kDim / 4; i += kThreads) {
    const uint32_t m = i / (kDim / 4);
    const uint32_t d = i % (kDim / 4) * 4;
    float4 x = {0, 0, 0, 0};
    if (m < run.product_rows() && d < args.head_dim) {
      const size_t at = size_t{run.row_begin + m / run.group} * args.head_count +
                        run.kv_head * run.group + m % run.group;
      x = *reinterpret_cast<const float4*>(args.qg + at * 2 * args.head_dim + d);
    }
    const PairTerms pairs[2] = {SplitPair(x.x, x.y), SplitPair(x.z, x.w)};
    const uint32_t at =
        m * Shared<kDim, kFormat>::kStride + d / 16 * 16 + d % 16 / 4 * Column::kStep;
#pragma unroll
    for (uint32_t p = 0; p < 2; ++p) {
      *reinterpret_cast<uint32_t*>(&shared->q[0][at + p * Column::kHalf]) = pairs[p].high;
      *reinterpret_cast<uint32_t*>(&shared->q[1][at + p * Column::kHalf]) = pairs[p].low;
    }
  }
}

// What one lane keeps of its warp's 16 product rows: halves are row lane / 4 and the one eight
// below.
template <int kDim>
struct Sums {
  MmaSum out[kDim / 8];
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's columns only
};

// s = scale * (q . k) for a tile.
template <int kDim, KvFormat kFormat>
__device__ inline void Scores(const Shared<kDim, kFormat>& shared, float scale,
                              MmaSum (&s)[kTileColumns]) {
  constexpr uint32_t kStride = Shared<kDim, kFormat>::kStride;
  const uint32_t first = threadIdx.x / kWarpLanes * 16;
#pragma unroll 2
  for (uint32_t d = 0; d < kDim; d += 16) {
    const MmaA high = LoadA(shared.q[0] + first * kStride + d, kStride);
    const MmaA low = LoadA(shared.q[1] + first * kStride + d, kStride);
#pragma unroll
    for (uint32_t n = 0; n < kTileColumns; n += 2) {
      const MmaB k = KeyOperand(shared.k, n * 8, d);
      Multiply(high, k.x[0], k.x[1], &s[n]);
      Multiply(high, k.x[2], k.x[3], &s[n + 1]);
      Multiply(low, k.x[0], k.x[1], &s[n]);
      Multiply(low, k.x[2], k.x[3], &s[n + 1]);
    }
  }
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      s[n].x[i] = __fmul_rn(s[n].x[i], scale);
      if constexpr (kFormat == KvFormat::kInt8) {
        s[n].x[i] = __fmul_rn(s[n].x[i], shared.k.scale[n * 8 + lane % 4 * 2 + i % 2]);
      }
    }
  }
}

// s becomes p, sums so far shrink to the new maximum. `last` is the last position, from the tile's
// first one, that each half may see; negative: none of this tile.
template <int kDim, KvFormat kFormat>
__device__ inline void Probabilities(const Shared<kDim, kFormat>& shared, const int (&last)[2],
                                     MmaSum (&s)[kTileColumns], Sums<kDim>* sums) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  float max[2] = {sums->max[0], sums->max[1]};
#pragma unroll
  for (uint32_t n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = n * 8 + lane % 4 * 2 + i % 2;
      if (static_cast<int>(column) <= last[i / 2]) max[i / 2] = fmaxf(max[i / 2], s[n].x[i]);
    }
  }
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    max[half] = fmaxf(max[half], __shfl_xor_sync(kEveryLane, max[half], 1));
    max[half] = fmaxf(max[half], __shfl_xor_sync(kEveryLane, max[half], 2));
    shrink[half] =
        sums->max[half] == -INFINITY ? 0.0f : ExpOf(__fsub_rn(sums->max[half], max[half]));
    sums->max[half] = max[half];
    sums->sum[half] = __fmul_rn(sums->sum[half], shrink[half]);
  }
#pragma unroll
  for (MmaSum& out : sums->out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out.x[i] = __fmul_rn(out.x[i], shrink[i / 2]);
  }
#pragma unroll
  for (uint32_t n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = n * 8 + lane % 4 * 2 + i % 2;
      const bool seen = static_cast<int>(column) <= last[i / 2];
      float p = seen ? ExpOf(__fsub_rn(s[n].x[i], max[i / 2])) : 0.0f;
      sums->sum[i / 2] = __fadd_rn(sums->sum[i / 2], p);
      if constexpr (kFormat == KvFormat::kInt8) p = __fmul_rn(p, shared.v.scale[column]);
      s[n].x[i] = p;
    }
  }
}

// out += p . v; two neighbouring 16 x 8 tiles of p are the operand of 16 positions.
template <int kDim, KvFormat kFormat>
__device__ inline void AddValues(const Shared<kDim, kFormat>& shared,
                                 const MmaSum (&p)[kTileColumns], Sums<kDim>* sums) {
#pragma unroll
  for (uint32_t k = 0; k < kTile; k += 16) {
    MmaA high;
    MmaA low;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MmaSum& from = p[k / 8 + i / 2];
      const PairTerms terms = SplitPair(from.x[i % 2 * 2], from.x[i % 2 * 2 + 1]);
      high.x[i] = terms.high;
      low.x[i] = terms.low;
    }
#pragma unroll
    for (uint32_t n = 0; n < kDim / 8; n += 2) {
      const MmaB v = ValueOperand(shared.v, k, n * 8);
      Multiply(high, v.x[0], v.x[1], &sums->out[n]);
      Multiply(high, v.x[2], v.x[3], &sums->out[n + 1]);
      Multiply(low, v.x[0], v.x[1], &sums->out[n]);
      Multiply(low, v.x[2], v.x[3], &sums->out[n + 1]);
    }
  }
}

template <int kDim, KvFormat kFormat>
__device__ void StoreRun(const QsaAttendKernelArgs& args, const Run& run, const Sums<kDim>& sums) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    float sum = sums.sum[half];
    sum = __fadd_rn(sum, __shfl_xor_sync(kEveryLane, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(kEveryLane, sum, 2));
    const uint32_t m = threadIdx.x / kWarpLanes * 16 + lane / 4 + half * 8;
    if (m >= run.product_rows()) continue;
    const size_t at = size_t{run.row_begin + m / run.group} * args.head_count +
                      run.kv_head * run.group + m % run.group;
    if (lane % 4 == 0) args.softmax[at] = {sums.max[half], sum};
#pragma unroll
    for (uint32_t n = 0; n < kDim / 8; n += 2) {
      StoreSums<kFormat>(sums.out[n], sums.out[n + 1], half, n * 8, args.head_dim,
                         args.partial + at * args.head_dim);
    }
  }
}

template <int kDim, KvFormat kFormat>
__device__ void AttendRun(const QsaAttendKernelArgs& args, const Run& run,
                          Shared<kDim, kFormat>* shared) {
  const uint32_t end = run.position_end();
  const auto load = [&](const std::byte* cache, const float* scales, uint32_t begin,
                        KvTile<kDim, kFormat>* to) {
    LoadKvTile<kThreads>(
        {cache, scales, args.kv_head_count, run.kv_head, args.head_dim},
        [&](uint32_t i) { return begin + i < end ? begin + i : kNoPosition; }, to);
    CommitCopies();
  };
  const GpuLayerState& state = *run.state;
  __syncthreads();  // an earlier run may still be read
  load(state.k, state.k_scale, 0, &shared->k);
  load(state.v, state.v_scale, 0, &shared->v);
  StageQueries(args, run, shared);
  Sums<kDim> sums;
  const uint32_t m = threadIdx.x / kWarpLanes * 16 + threadIdx.x % kWarpLanes / 4;
  for (uint32_t begin = 0; begin < end; begin += kTile) {
    const bool more = begin + kTile < end;
    int last[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = (m + half * 8) / run.group;
      last[half] = static_cast<int>(run.position + row) - static_cast<int>(begin);
    }
    WaitCopies<1>();  // keys
    __syncthreads();
    MmaSum s[kTileColumns];
    Scores(*shared, args.softmax_scale, s);
    __syncthreads();
    if (more) {
      load(state.k, state.k_scale, begin + kTile, &shared->k);
      WaitCopies<1>();  // values
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    Probabilities<kDim, kFormat>(*shared, last, s, &sums);
    AddValues(*shared, s, &sums);
    __syncthreads();
    if (more) load(state.v, state.v_scale, begin + kTile, &shared->v);
  }
  StoreRun<kDim, kFormat>(args, run, sums);
}

// grid: (tiles of rows, K/V heads); the last rows, which see most, go first. Rows that must choose
// are left out: they are the last ones of their segment.
template <int kDim, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1) QsaDenseKernel(const QsaAttendKernelArgs args) {
  extern __shared__ uint4 memory[];
  const uint32_t group = args.head_count / args.kv_head_count;
  const uint32_t tile_rows = kProductRows / group;
  const uint32_t first = (gridDim.x - 1 - blockIdx.x) * tile_rows;
  const uint32_t end = min(first + tile_rows, args.pass.rows);
  const uint32_t dense_positions = (args.block_count_max + 1) * args.block_tokens - 1;
  for (uint32_t row = first; row < end;) {
    const GpuSegment& segment = args.pass.segments[args.pass.row_segment[row]];
    const uint32_t segment_end = min(segment.row_begin + segment.rows, end);
    const uint32_t position = segment.base + (row - segment.row_begin);
    if (position < dense_positions) {
      const Run run = {segment.layers + args.layer,
                       row,
                       min(segment_end, row + (dense_positions - position)),
                       position,
                       blockIdx.y,
                       group};
      AttendRun<kDim, kFormat>(args, run, reinterpret_cast<Shared<kDim, kFormat>*>(memory));
    }
    row = segment_end;
  }
}

template <int kDim, KvFormat kFormat>
absl::Status Enqueue(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  constexpr uint32_t kSharedBytes = sizeof(Shared<kDim, kFormat>);
  const auto kernel = QsaDenseKernel<kDim, kFormat>;
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "shared memory of dense attention"));
  const uint32_t tile_rows = kProductRows / (args.head_count / args.kv_head_count);
  const dim3 grid((args.pass.rows + tile_rows - 1) / tile_rows, args.kv_head_count);
  kernel<<<grid, kThreads, kSharedBytes, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of dense attention");
}

template <int kDim>
absl::Status EnqueueFormat(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  if (args.kv_format == KvFormat::kInt8) return Enqueue<kDim, KvFormat::kInt8>(args, stream);
  return Enqueue<kDim, KvFormat::kBf16>(args, stream);
}

template <int kDim>  // of the larger format
constexpr uint32_t kSharedBytesOf = sizeof(Shared<kDim, KvFormat::kBf16>);

}  // namespace

uint32_t QsaDenseSharedBytes(uint32_t head_dim) {
  if (head_dim <= 64) return kSharedBytesOf<64>;
  return head_dim <= 128 ? kSharedBytesOf<128> : kSharedBytesOf<256>;
}

absl::Status EnqueueQsaDense(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  if (args.head_dim <= 64) return EnqueueFormat<64>(args, stream);
  if (args.head_dim <= 128) return EnqueueFormat<128>(args, stream);
  return EnqueueFormat<256>(args, stream);
}

}  // namespace hearth
