// The shares of a row put together in order, its gate, and its quantisation for the output
// projection: out = (sum over shares of w * partial) / (sum of w * sum), w = exp(maximum of the
// share - maximum of all); times sigmoid(gate).
#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_attend.cuh"
#include "gpu_kernels/ops/attention/qsa_device.cuh"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;  // an element of the row each
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kSharesMax = (kQsaPositionsMax + kQsaSplitPositions - 1) / kQsaSplitPositions;
constexpr uint32_t kHeadsMax = kThreads / 8;  // of kThreads elements: a head has at least 8
constexpr uint32_t kSharesPerLane = (kSharesMax + kWarpLanes - 1) / kWarpLanes;

constexpr uint32_t kSharesAhead = 40;  // of an element, asked for before the weights are known

struct Weights {
  float of[kHeadsMax][kSharesMax];
  float sum[kHeadsMax];
};

// By one warp: the weights of all shares of `head`, and the denominator.
__device__ void WeighShares(const float2* softmax, uint32_t stride, uint32_t count, float* weights,
                            float* sum) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  float2 share[kSharesPerLane];
  float max = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kSharesPerLane; ++i) {
    const uint32_t s = i * kWarpLanes + lane;
    share[i] = s < count ? softmax[size_t{s} * stride] : float2{-INFINITY, 0};
    max = fmaxf(max, share[i].x);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    max = fmaxf(max, __shfl_xor_sync(kEveryLane, max, offset));
  }
  float total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kSharesPerLane; ++i) {
    const uint32_t s = i * kWarpLanes + lane;
    const float weight = s < count ? ExpOf(__fsub_rn(share[i].x, max)) : 0.0f;
    if (s < count) weights[s] = weight;
    total = __fmaf_rn(weight, share[i].y, total);
  }
  total = WarpSum(total);
  if (lane == 0) *sum = total;
}

// grid: (elements of a row / kThreads, rows).
__global__ void __launch_bounds__(kThreads) QsaMergeKernel(const QsaAttendKernelArgs args) {
  __shared__ Weights weights;
  const uint32_t row = blockIdx.y;
  const uint32_t width = args.head_count * args.head_dim;
  const uint32_t first_head = blockIdx.x * kThreads / args.head_dim;
  const uint32_t last_head = (min(width, (blockIdx.x + 1) * kThreads) - 1) / args.head_dim;
  const uint32_t position = PlaceOf(args.pass, args.layer, row).position;
  const QsaPositions positions(position, args.chosen, args.block_count_max, args.block_tokens);
  const uint32_t per_share = args.tiles_per_share * kQsaSplitPositions;
  const uint32_t shares = (positions.count + per_share - 1) / per_share;
  const size_t row_at = size_t{row} * args.share_count * args.head_count;

  const uint32_t e = blockIdx.x * kThreads + threadIdx.x;
  const bool valid = e < width;
  const uint32_t element_head = (valid ? e : 0) / args.head_dim;
  const float* const partial = args.partial + row_at * args.head_dim + e;
  // Up to here: only the pass table, which is written before a pass.
  AwaitLaunchBefore();
  float ahead[kSharesAhead];
#pragma unroll
  for (uint32_t s = 0; s < kSharesAhead; ++s) {
    ahead[s] = valid && s < shares ? partial[size_t{s} * width] : 0.0f;
  }
  const float z = valid
                      ? args.qg[(size_t{row} * args.head_count + element_head) * 2 * args.head_dim +
                                args.head_dim + e % args.head_dim]
                      : 0.0f;
  for (uint32_t head = first_head + threadIdx.x / kWarpLanes; head <= last_head; head += kWarps) {
    WeighShares(args.softmax + row_at + head, args.head_count, shares,
                weights.of[head - first_head], &weights.sum[head - first_head]);
  }
  __syncthreads();
  AllowLaunchAfter();

  float y = 0;
  if (valid) {
    const float* const weight = weights.of[element_head - first_head];
    float sum = 0;
#pragma unroll
    for (uint32_t s = 0; s < kSharesAhead; ++s) {
      if (s < shares) sum = __fmaf_rn(weight[s], ahead[s], sum);
    }
    for (uint32_t s = kSharesAhead; s < shares; ++s) {
      sum = __fmaf_rn(weight[s], partial[size_t{s} * width], sum);
    }
    const float gate = SigmoidOf(z);
    y = __fmul_rn(__fdiv_rn(sum, weights.sum[element_head - first_head]), gate);
    args.out[size_t{row} * width + e] = y;
  }
  const uint32_t block = e / kActivationBlockValues;
  const uint32_t blocks = (width + kActivationBlockValues - 1) / kActivationBlockValues;
  if (block >= blocks) return;  // the same for the whole warp
  const QuantizedLane quantized = QuantizeLane(y, valid);
  const size_t at = size_t{row} * blocks + block;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  args.q[at * kActivationBlockValues + lane] = static_cast<int8_t>(quantized.q);
  if (lane == 0) args.scale[at] = quantized.scale;
  if (lane % 16 == 0) args.sum16[at * 2 + lane / 16] = quantized.sum16;
}

}  // namespace

absl::Status EnqueueQsaMerge(const QsaAttendKernelArgs& args, CudaStreamView stream) {
  const uint32_t width = args.head_count * args.head_dim;
  const dim3 grid((width + kThreads - 1) / kThreads, args.pass.rows);
  return LaunchOverlapping("launch of the merge of attention", QsaMergeKernel,
                           {.blocks = grid, .threads = kThreads}, stream, args);
}

}  // namespace hearth
