// The kernels of hyper_connection.h and combine.h.
#include <string_view>

#include "gpu_kernels/device/cluster.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "gpu_kernels/ops/exchange/output_wait.cuh"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kRanksInFlight = 10;
constexpr uint32_t kCombineThreadsMax = 640;  // leaves registers for kRanksInFlight vectors
constexpr uint32_t kColumnThreads = 128;      // of the kernels that are element-wise along a row
constexpr uint32_t kStreamsInFlight = 4;
constexpr uint32_t kClusterBlocksMax = 8;  // of every card that has clusters

// The weights and places of a row's expert outputs: lane r of a warp has those of rank r.
struct LaneRank {
  float weight;
  const float* y;  // the output's row
};

__device__ inline LaneRank RankOfLane(const GpuCombineSource& from, uint32_t row) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  if (lane >= from.ranks) return {0.0f, nullptr};
  const size_t entry = size_t{row} * from.ranks + lane;
  const bool in_host = from.on_card != nullptr && from.on_card[entry] == 0;
  return {from.weight[entry], (in_host ? from.host_y : from.device_y) + entry * from.y_stride};
}

// Vector `i` of the combination of row `row`. All lanes of the warp call; those that are not
// `there` get nothing. Outputs are read past the first cache: the host may have written them.
__device__ inline float4 CombineVector(const GpuCombineSource& from, const LaneRank& rank,
                                       uint32_t row, uint32_t hidden, uint32_t i, bool there) {
  constexpr float4 kZero = {0, 0, 0, 0};
  float4 acc = kZero;
  const float4 shared = from.shared != nullptr && there
                            ? LoadVector(from.shared, size_t{row} * (hidden / 4) + i)
                            : kZero;
  for (uint32_t begin = 0; begin < from.ranks; begin += kRanksInFlight) {
    float4 y[kRanksInFlight];
#pragma unroll
    for (uint32_t r = 0; r < kRanksInFlight; ++r) {
      const auto address = reinterpret_cast<unsigned long long>(rank.y);
      const auto* from_row = reinterpret_cast<const float4*>(
          __shfl_sync(kAllWarpLanes, address, (begin + r) % kWarpLanes));
      y[r] = there && begin + r < from.ranks ? __ldcv(from_row + i) : kZero;
    }
#pragma unroll
    for (uint32_t r = 0; r < kRanksInFlight; ++r) {
      const float w = __shfl_sync(kAllWarpLanes, rank.weight, (begin + r) % kWarpLanes);
      if (begin + r >= from.ranks) break;
      acc = MapVector(acc, y[r], [w](float a, float v) { return __fmaf_rn(w, v, a); });
    }
  }
  if (from.shared == nullptr) return acc;
  const float gate = from.shared_gate[row];
  return MapVector(acc, shared, [gate](float a, float v) { return __fmaf_rn(gate, v, a); });
}

// How a step finds the combination of a row's experts.
enum class Combining : uint8_t {
  kNone,    // it writes something else
  kAlone,   // each block all of it
  kShared,  // the blocks of a row are a cluster, each makes a part and gives it to the others
};

// The thread's vector of a combination that the blocks of a cluster make together: each output
// crosses the link, or the card's cache, once for a row and not once for a stream. `combined`:
// shared memory for the whole row, (hidden / 4). All threads call, once, and after
// ArriveAtCluster().
__device__ inline float4 CombineTogether(const GpuCombineSource& from, uint32_t row,
                                         uint32_t hidden, float4* combined) {
  const uint32_t vectors = hidden / 4;
  const uint32_t share = (vectors + gridDim.x - 1) / gridDim.x;
  const uint32_t i = ClusterRank() * share + threadIdx.x;
  const bool there = threadIdx.x < share && i < vectors;
  float4 y = {0, 0, 0, 0};
  if (threadIdx.x / kWarpLanes * kWarpLanes < share) {
    y = CombineVector(from, RankOfLane(from, row), row, hidden, i, there);
  }
  AwaitCluster();  // all blocks have started
  for (uint32_t block = 0; there && block < gridDim.x; ++block) {
    InClusterBlock(combined, block)[i] = y;
  }
  ArriveAtCluster();
  AwaitCluster();
  return threadIdx.x < vectors ? combined[threadIdx.x] : float4{0, 0, 0, 0};
}

// What the write of `y` leaves in a vector of a stream; `h` is what is there.
__device__ inline float4 WrittenVector(StreamWrite write, float inject, float4 y, float4 h) {
  if (write == StreamWrite::kNone) return h;
  if (write == StreamWrite::kBroadcast) return y;
  return MapVector(y, h, [inject](float v, float old) { return __fmaf_rn(inject, v, old); });
}

// Block (s, row): one stream of one row, kVectors vectors a thread.
template <uint32_t kVectors, Combining kCombining>
__global__ void __launch_bounds__(kVectors == 1
                                      ? (kCombining != Combining::kNone ? kCombineThreadsMax : 1024)
                                      : 512,
                                  1) StreamStepKernel(const GpuStreamStepArgs args) {
  static_assert(kCombining != Combining::kShared || kVectors == 1);
  __shared__ float partial[kBlockWarpsMax];
  if constexpr (kCombining == Combining::kShared) ArriveAtCluster();
  const uint32_t row = blockIdx.y;
  const uint32_t stream = blockIdx.x;
  const uint32_t vectors = args.hidden / 4;
  const size_t first = (size_t{row} * args.streams + stream) * vectors;
  float4 h[kVectors];
  float4 w[kVectors];
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {  // weights: no launch writes them
    const uint32_t i = threadIdx.x + k * blockDim.x;
    const bool wanted = args.norm != nullptr && i < vectors;
    w[k] = wanted ? LoadVector(args.norm, size_t{stream} * vectors + i) : float4{0, 0, 0, 0};
  }
  if (kCombining != Combining::kNone && args.combine.wait.words.state != nullptr) {
    AwaitOutputs(args.combine.wait, row == 0 && stream == 0);
  } else {
    AwaitLaunchBefore();
  }
  LaneRank rank = {};
  if (kCombining == Combining::kAlone) rank = RankOfLane(args.combine, row);
  const float inject = args.inject != nullptr ? args.inject[row * args.streams + stream] : 1.0f;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    const bool wanted = args.write != StreamWrite::kBroadcast && i < vectors;
    h[k] = wanted ? LoadVector(args.h, first + i) : float4{0, 0, 0, 0};
  }
  float4 together = {0, 0, 0, 0};
  if constexpr (kCombining == Combining::kShared) {
    __shared__ float4 combined[kCombineThreadsMax];
    together = CombineTogether(args.combine, row, args.hidden, combined);
  }
  float sum = 0;
#pragma unroll
  for (uint32_t k = 0; k < kVectors; ++k) {
    const uint32_t i = threadIdx.x + k * blockDim.x;
    float4 y = together;
    if (kCombining == Combining::kAlone) {
      y = CombineVector(args.combine, rank, row, args.hidden, i, i < vectors);
    } else if (kCombining == Combining::kNone && args.write != StreamWrite::kNone && i < vectors) {
      y = LoadVector(args.y, size_t{row} * vectors + i);
    }
    if (i >= vectors) continue;
    h[k] = WrittenVector(args.write, inject, y, h[k]);
    if (args.write != StreamWrite::kNone) StoreVector(args.h, first + i, h[k]);
    sum = AddSquares(h[k], sum);
  }
  AllowLaunchAfter();
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
  AwaitLaunchBefore();
  AllowLaunchAfter();
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
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = blockIdx.y;
  const uint32_t vectors = args.hidden / 4;
  const uint32_t i = blockIdx.x * kColumnThreads + threadIdx.x;
  const float4 y =
      CombineVector(args.from, RankOfLane(args.from, row), row, args.hidden, i, i < vectors);
  if (i < vectors) StoreVector(args.out, size_t{row} * vectors + i, y);
}

constexpr uint32_t RoundUpToWarp(uint32_t threads) { return (threads + 31) / 32 * 32; }

}  // namespace

absl::Status LaunchStreamStep(const GpuStreamStepArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckStreamStep(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t vectors = args.hidden / 4;
  const dim3 blocks(args.streams, args.rows);
  const LaunchShape a_vector_each = {.blocks = blocks, .threads = RoundUpToWarp(vectors)};
  const LaunchShape several_each = {.blocks = blocks, .threads = 512};
  constexpr std::string_view kWhat = "launch of a step of the residual streams";
  const auto launch = [&](const auto kernel, const LaunchShape& shape) {
    return LaunchOverlapping(kWhat, kernel, shape, stream, args);
  };
  if (args.write != StreamWrite::kCombine) {
    return vectors <= 1024 ? launch(StreamStepKernel<1, Combining::kNone>, a_vector_each)
                           : launch(StreamStepKernel<8, Combining::kNone>, several_each);
  }
  if (vectors > kCombineThreadsMax) {
    return launch(StreamStepKernel<8, Combining::kAlone>, several_each);
  }
  HEARTH_ASSIGN_OR_RETURN(const bool clusters, HasClusters(stream.gpu()));
  if (!clusters || args.combine.host_y == nullptr || args.streams > kClusterBlocksMax) {
    return launch(StreamStepKernel<1, Combining::kAlone>, a_vector_each);
  }
  LaunchShape shape = a_vector_each;
  shape.cluster_blocks = args.streams;
  return launch(StreamStepKernel<1, Combining::kShared>, shape);
}

absl::Status LaunchStreamMix(const GpuStreamMixArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckStreamMix(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const dim3 grid((args.hidden + kColumnThreads - 1) / kColumnThreads, args.rows);
  return LaunchOverlapping("launch of the mix of the residual streams", StreamMixKernel,
                           {.blocks = grid, .threads = kColumnThreads}, stream, args);
}

absl::Status LaunchCombine(const GpuCombineArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckCombine(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const dim3 grid((args.hidden / 4 + kColumnThreads - 1) / kColumnThreads, args.rows);
  return LaunchOverlapping("launch of the combination of experts", CombineKernel,
                           {.blocks = grid, .threads = kColumnThreads}, stream, args);
}

}  // namespace hearth
