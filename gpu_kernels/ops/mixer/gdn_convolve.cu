// The convolution, norms and gates of gdn.h: a warp for each head of a row.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "gpu_kernels/ops/mixer/pass_rows.cuh"
#include "gpu_kernels/ops/mixer/ring_store.cuh"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 4;
constexpr float kL2Epsilon = 1e-6f;  // as L2NormArgs

// Where the results of one row go.
struct RowTargets {
  float* qkv;
  float* decay;  // exp(g) for a window, g for a prompt
  float* beta;
};

__device__ inline RowTargets TargetsOf(const GpuGdnConvolveArgs& args, const RowPlace& place,
                                       uint32_t row) {
  const uint32_t channels = ChannelsOf(args.shape);
  const uint32_t heads = args.shape.value_heads;
  if (!args.window) {
    return {args.qkv + size_t{row} * channels, args.log_decay + size_t{row} * heads,
            args.beta + size_t{row} * heads};
  }
  const GpuLayerState& state = place.segment->layers[args.layer];
  const size_t pending =
      size_t{1 - place.segment->parity} * args.pass.window_rows_max + place.index;
  return {state.pending_qkv + pending * channels, state.pending_decay + pending * heads,
          state.pending_beta + pending * heads};
}

__device__ inline void StoreGates(const GpuGdnConvolveArgs& args, const RowTargets& to,
                                  uint32_t row, uint32_t head) {
  if (head >= args.shape.value_heads) return;
  const size_t at = size_t{row} * args.shape.value_heads + head;
  const float x = __fadd_rn(args.a[at], args.dt_bias[head]);
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  const float g = __fmul_rn(-expf(args.a_log[head]), softplus);
  to.decay[head] = args.window ? expf(g) : g;
  to.beta[head] = SigmoidOf(args.b[at]);
}

// Block (unit / kWarps, row). Units: q heads, k heads, v heads, then gates of 32 heads each.
__global__ void __launch_bounds__(kWarps * kWarpLanes)
    GdnConvolveKernel(const GpuGdnConvolveArgs args) {
  const GpuGdnShape& shape = args.shape;
  const uint32_t row = blockIdx.y;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t unit = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  const uint32_t heads = 2 * shape.key_heads + shape.value_heads;
  const RowPlace place = PlaceOf(args.pass, row);
  const RowTargets to = TargetsOf(args, place, row);
  if (unit >= heads) {
    StoreGates(args, to, row, (unit - heads) * kWarpLanes + lane);
    return;
  }
  const bool is_value = unit >= 2 * shape.key_heads;
  const uint32_t dim = is_value ? shape.value_dim : shape.key_dim;
  const uint32_t first = is_value ? 2 * shape.key_heads * shape.key_dim +
                                        (unit - 2 * shape.key_heads) * shape.value_dim
                                  : unit * shape.key_dim;
  const uint32_t channels = ChannelsOf(shape);
  const uint32_t i = first / 4 + lane;
  const bool there = lane < dim / 4;
  float* const ring = place.segment->layers[args.layer].conv_ring;
  const float* x = args.projected + size_t{row} * channels;
  float4 acc = {0, 0, 0, 0};
#pragma unroll 4
  for (uint32_t tap = 0; tap < shape.taps; ++tap) {
    const float* from = EarlierRow(args.pass, place, shape.taps - 1 - tap, x, ring, channels);
    if (!there || from == nullptr) continue;
    const float4 w = LoadVector(args.conv, size_t{tap} * (channels / 4) + i);
    const float4 v = LoadVector(from, i);
    acc = {__fmaf_rn(w.x, v.x, acc.x), __fmaf_rn(w.y, v.y, acc.y), __fmaf_rn(w.z, v.z, acc.z),
           __fmaf_rn(w.w, v.w, acc.w)};
  }
  acc = MapVector(acc, [](float v) { return SiluOf(v); });
  if (!is_value) {
    const float sum = WarpSum(AddSquares(acc, 0.0f));
    const float scale =
        unit < shape.key_heads ? 1.0f / __fsqrt_rn(static_cast<float>(shape.key_dim)) : 1.0f;
    const float factor =
        __fmul_rn(__fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, kL2Epsilon))), scale);
    acc = MapVector(acc, [factor](float v) { return __fmul_rn(v, factor); });
  }
  if (!there) return;
  StoreVector(to.qkv, i, acc);
  if (args.window) {
    StoreVector(ring + size_t{place.position & (args.pass.ring_rows - 1)} * channels, i,
                LoadVector(x, i));
  }
}

}  // namespace

absl::Status LaunchGdnConvolve(const GpuGdnConvolveArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnConvolve(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const GpuGdnShape& shape = args.shape;
  const uint32_t units = 2 * shape.key_heads + shape.value_heads +
                         (shape.value_heads + kWarpLanes - 1) / kWarpLanes;
  const dim3 grid((units + kWarps - 1) / kWarps, args.pass.rows);
  GdnConvolveKernel<<<grid, kWarps * kWarpLanes, 0, stream.get()>>>(args);
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "launch of the convolution"));
  if (args.window) return absl::OkStatus();
  return LaunchRingStore(args.pass, ConvRing{args.layer}, args.projected, shape.channels(),
                         stream);
}

}  // namespace hearth
