// The kernels of hyper_connection.h and combine.h.
#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kRanksInFlight = 5;
constexpr uint32_t kCombineThreadsMax = 640;  // leaves registers for kRanksInFlight vectors
constexpr uint32_t kColumnThreads = 128;      // of the kernels that are element-wise along a row
constexpr uint32_t kStreamsInFlight = 4;

// Vector `i` of row `row` of the combination. Mapped host memory is read past the caches.
__device__ inline float4 CombineVector(const GpuCombineSource& from, uint32_t row, uint32_t hidden,
                                       uint32_t i) {
  float4 acc = {0, 0, 0, 0};
  const size_t first = size_t{row} * from.ranks;
  for (uint32_t begin = 0; begin < from.ranks; begin += kRanksInFlight) {
    float4 y[kRanksInFlight];
    float weight[kRanksInFlight];
#pragma unroll
    for (uint32_t r = 0; r < kRanksInFlight; ++r) {
      if (begin + r >= from.ranks) break;
      const size_t entry = first + begin + r;
      const size_t at = entry * from.y_stride / 4 + i;
      weight[r] = from.weight[entry];
      if (from.on_card != nullptr && from.on_card[entry] == 0) {
        y[r] = __ldcv(reinterpret_cast<const float4*>(from.host_y) + at);
      } else {
        y[r] = LoadVector(from.device_y, at);
      }
    }
#pragma unroll
    for (uint32_t r = 0; r < kRanksInFlight; ++r) {
      if (begin + r >= from.ranks) break;
      const float w = weight[r];
      acc = MapVector(acc, y[r], [w](float a, float v) { return __fmaf_rn(w, v, a); });
    }
  }
  if (from.shared == nullptr) return acc;
  const float gate = from.shared_gate[row];
  return MapVector(acc, LoadVector(from.shared, size_t{row} * (hidden / 4) + i),
                   [gate](float a, float v) { return __fmaf_rn(gate, v, a); });
}

// What the write leaves in vector i of stream s of a row; `h` is what is there.
template <bool kCombine>
__device__ inline float4 WrittenVector(const GpuStreamStepArgs& args, uint32_t row, float inject,
                                       uint32_t i, float4 h) {
  if (args.write == StreamWrite::kNone) return h;
  const float4 y = kCombine ? CombineVector(args.combine, row, args.hidden, i)
                            : LoadVector(args.y, size_t{row} * (args.hidden / 4) + i);
  if (args.write == StreamWrite::kBroadcast) return y;
  return MapVector(y, h, [inject](float v, float old) { return __fmaf_rn(inject, v, old); });
}

// Block (s, row): one stream of one row, kVectors vectors a thread.
template <uint32_t kVectors, bool kCombine>
__global__ void __launch_bounds__(kVectors == 1 ? (kCombine ? kCombineThreadsMax : 1024) : 512,
                                  kVectors == 1 && kCombine ? 2 : 1)
    StreamStepKernel(const GpuStreamStepArgs args) {
  __shared__ float partial[kBlockWarpsMax];
  const uint32_t row = blockIdx.y;
  const uint32_t stream = blockIdx.x;
  const uint32_t vectors = args.hidden / 4;
  const size_t first = (size_t{row} * args.streams + stream) * vectors;
  const float inject = args.inject != nullptr ? args.inject[row * args.streams + stream] : 1.0f;
  float4 h[kVectors];
  float4 w[kVectors];
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    h[k] = {0, 0, 0, 0};
    w[k] = {0, 0, 0, 0};
    if (i >= vectors) continue;
    if (args.write != StreamWrite::kBroadcast) h[k] = LoadVector(args.h, first + i);
    if (args.norm != nullptr) w[k] = LoadVector(args.norm, size_t{stream} * vectors + i);
  }
  float sum = 0;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) continue;
    h[k] = WrittenVector<kCombine>(args, row, inject, i, h[k]);
    if (args.write != StreamWrite::kNone) StoreVector(args.h, first + i, h[k]);
    sum = AddSquares(h[k], sum);
  }
  if (args.norm == nullptr) return;
  const float factor = NormFactor(BlockSum(sum, partial), args.hidden, args.epsilon);
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    const bool there = i < vectors;
    const float4 hn = NormaliseVector(h[k], factor, w[k]);
    if (there && args.hn != nullptr) StoreVector(args.hn, first + i, hn);
    if (args.hn_quantized.q != nullptr) StoreQuantized(args.hn_quantized, first + i, hn, there);
  }
}

// Block (columns, row): a thread for each value, a warp for each quantised block.
__global__ void __launch_bounds__(kColumnThreads) StreamMixKernel(const GpuStreamMixArgs args) {
  const uint32_t row = blockIdx.y;
  const uint32_t j = blockIdx.x * kColumnThreads + threadIdx.x;
  if (j >= args.hidden) return;  // the same for the whole warp
  const size_t first = size_t{row} * args.streams * args.hidden + j;
  float u = 0;
  for (uint32_t begin = 0; begin < args.streams; begin += kStreamsInFlight) {
    float gate[kStreamsInFlight];
    float hn[kStreamsInFlight];
#pragma unroll
    for (uint32_t s = 0; s < kStreamsInFlight; ++s) {
      if (begin + s >= args.streams) break;
      const size_t at = first + size_t{begin + s} * args.hidden;
      gate[s] = args.gate[at];
      hn[s] = args.hn[at];
    }
#pragma unroll
    for (uint32_t s = 0; s < kStreamsInFlight; ++s) {
      if (begin + s >= args.streams) break;
      u = __fmaf_rn(SigmoidOf(gate[s]), hn[s], u);
    }
  }
  u = __fmul_rn(u, 1.0f / static_cast<float>(args.streams));
  const size_t at = size_t{row} * args.hidden + j;
  args.u[at] = u;
  if (args.u_quantized.q != nullptr) StoreQuantizedLane(args.u_quantized, at, u);
}

__global__ void __launch_bounds__(kColumnThreads) CombineKernel(const GpuCombineArgs args) {
  const uint32_t row = blockIdx.y;
  const uint32_t vectors = args.hidden / 4;
  const uint32_t i = blockIdx.x * kColumnThreads + threadIdx.x;
  if (i >= vectors) return;
  StoreVector(args.out, size_t{row} * vectors + i, CombineVector(args.from, row, args.hidden, i));
}

constexpr uint32_t RoundUpToWarp(uint32_t threads) { return (threads + 31) / 32 * 32; }

}  // namespace

absl::Status LaunchStreamStep(const GpuStreamStepArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckStreamStep(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t vectors = args.hidden / 4;
  const dim3 grid(args.streams, args.rows);
  if (args.write == StreamWrite::kCombine) {
    if (vectors <= kCombineThreadsMax) {
      StreamStepKernel<1, true><<<grid, RoundUpToWarp(vectors), 0, stream.get()>>>(args);
    } else {
      StreamStepKernel<8, true><<<grid, 512, 0, stream.get()>>>(args);
    }
  } else if (vectors <= 1024) {
    StreamStepKernel<1, false><<<grid, RoundUpToWarp(vectors), 0, stream.get()>>>(args);
  } else {
    StreamStepKernel<8, false><<<grid, 512, 0, stream.get()>>>(args);
  }
  return CudaStatus(cudaGetLastError(), "launch of a step of the residual streams");
}

absl::Status LaunchStreamMix(const GpuStreamMixArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckStreamMix(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const dim3 grid((args.hidden + kColumnThreads - 1) / kColumnThreads, args.rows);
  StreamMixKernel<<<grid, kColumnThreads, 0, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of the mix of the residual streams");
}

absl::Status LaunchCombine(const GpuCombineArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCombine(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const dim3 grid((args.hidden / 4 + kColumnThreads - 1) / kColumnThreads, args.rows);
  CombineKernel<<<grid, kColumnThreads, 0, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of the combination of experts");
}

}  // namespace hearth
