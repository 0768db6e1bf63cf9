// The kernel of router.h: one warp for each row, the scores in its registers.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/mixer/router.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kTaken = 0;   // below every score
constexpr uint32_t kNanKey = 1;  // below every number and not taken

// Orders as the scores do, with -0 equal to +0.
__device__ inline uint32_t KeyOf(float score) {
  if (score != score) return kNanKey;
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float ScoreOf(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// By halves, so that few comparisons wait for each other.
template <uint32_t kCount>
__device__ inline uint32_t MostOf(const uint32_t* key) {
  if constexpr (kCount == 1) {
    return key[0];
  } else {
    return max(MostOf<kCount / 2>(key), MostOf<kCount / 2>(key + kCount / 2));
  }
}

// Expert e lies in lane e % 32, at e / 32. Lane r keeps choice r.
template <uint32_t kPerLane>
__global__ void __launch_bounds__(kWarpLanes) RouterKernel(const GpuRouterArgs args) {
  const uint32_t row = blockIdx.x;
  const uint32_t lane = threadIdx.x;
  const float* logits = args.logits + size_t{row} * args.expert_count;
  uint32_t key[kPerLane];
  bool nan = false;
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const uint32_t e = i * kWarpLanes + lane;
    const float score = e < args.expert_count ? logits[e] : 0.0f;
    nan |= score != score;
    key[i] = e < args.expert_count ? KeyOf(score) : kTaken;
  }
  if (nan) *args.nan_flag = 1;
  uint32_t chosen = 0;
  float chosen_score = 0;
  float top = 0;
  for (uint32_t r = 0; r < args.ranks; ++r) {
    const uint32_t most = __reduce_max_sync(kAllWarpLanes, MostOf<kPerLane>(key));
    uint32_t ties = 0;  // bit i: key i of the lane
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) ties |= (key[i] == most ? 1u : 0u) << i;
    const uint32_t expert = __reduce_min_sync(
        kAllWarpLanes, ties != 0 ? (__ffs(ties) - 1) * kWarpLanes + lane : UINT32_MAX);
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      if (i * kWarpLanes + lane == expert) key[i] = kTaken;
    }
    if (r == 0) top = ScoreOf(most);
    if (lane == r) {
      chosen = expert;
      chosen_score = ScoreOf(most);
    }
  }
  const bool ranked = lane < args.ranks;
  const size_t to = size_t{row} * args.ranks + lane;
  if (ranked) args.expert[to] = chosen;
  if (args.weight == nullptr) return;
  const float value = ranked ? expf(__fsub_rn(chosen_score, top)) : 0.0f;
  float sum = 0;
  if (args.renormalise) {
    for (uint32_t r = 0; r < args.ranks; ++r) {
      sum = __fadd_rn(sum, __shfl_sync(kAllWarpLanes, value, r));
    }
  } else {
    for (uint32_t e = lane; e < args.expert_count; e += kWarpLanes) {
      sum = __fadd_rn(sum, expf(__fsub_rn(logits[e], top)));
    }
    sum = WarpSum(sum);
  }
  if (ranked) args.weight[to] = __fdiv_rn(value, sum);
}

}  // namespace

absl::Status LaunchRouter(const GpuRouterArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckRouter(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  if (args.expert_count <= 4 * kWarpLanes) {
    RouterKernel<4><<<args.rows, kWarpLanes, 0, stream.get()>>>(args);
  } else if (args.expert_count <= 16 * kWarpLanes) {
    RouterKernel<16><<<args.rows, kWarpLanes, 0, stream.get()>>>(args);
  } else {
    RouterKernel<32><<<args.rows, kWarpLanes, 0, stream.get()>>>(args);
  }
  return CudaStatus(cudaGetLastError(), "launch of the router's choice");
}

}  // namespace hearth
