// The convolution, norms and gates of a prompt's rows (gdn.h): a warp for each head of a row.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/gdn_convolve.cuh"
#include "gpu_kernels/ops/mixer/gdn_rows.cuh"
#include "gpu_kernels/ops/mixer/ring_store.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 4;

__device__ inline void StoreGates(const GpuGdnConvolveArgs& args, uint32_t row, uint32_t head) {
  if (head >= args.shape.value_heads) return;
  const size_t at = size_t{row} * args.shape.value_heads + head;
  args.log_decay[at] = LogDecayOf(args.in.a[at], args.in.a_log[head], args.in.dt_bias[head]);
  args.beta[at] = SigmoidOf(args.in.b[at]);
}

// Block (unit / kWarps, row). Units: q heads, k heads, v heads, then gates of 32 heads each.
__global__ void __launch_bounds__(kWarps* kWarpLanes)
    GdnConvolveKernel(const GpuGdnConvolveArgs args) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const GpuGdnShape& shape = args.shape;
  const uint32_t row = blockIdx.y;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t unit = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  const uint32_t heads = 2 * shape.key_heads + shape.value_heads;
  if (unit >= heads) {
    StoreGates(args, row, (unit - heads) * kWarpLanes + lane);
    return;
  }
  const bool is_value = unit >= 2 * shape.key_heads;
  const uint32_t dim = is_value ? shape.value_dim : shape.key_dim;
  const uint32_t first = is_value ? 2 * shape.key_heads * shape.key_dim +
                                        (unit - 2 * shape.key_heads) * shape.value_dim
                                  : unit * shape.key_dim;
  const uint32_t channels = ChannelsOf(shape);
  const RowPlace place = PlaceOf(args.pass, row);
  const uint32_t i = first / 4 + lane;
  const bool there = lane < dim / 4;
  float4 x = {0, 0, 0, 0};
  if (there) {
    x = Convolve(args.pass, place, args.in.projected + size_t{row} * channels,
                 place.segment->layers[args.layer].conv_ring, args.in.conv, shape.taps, channels, i)
            .x;
  }
  if (!is_value) {
    const float factor = L2Factor(WarpSum(AddSquares(x, 0.0f)),
                                  unit < shape.key_heads ? QueryScale(shape.key_dim) : 1.0f);
    x = MapVector(x, [factor](float v) { return __fmul_rn(v, factor); });
  }
  if (there) StoreVector(args.qkv + size_t{row} * channels, i, x);
}

}  // namespace

absl::Status LaunchGdnConvolve(const GpuGdnConvolveArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckGdnConvolve(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const GpuGdnShape& shape = args.shape;
  const uint32_t units =
      2 * shape.key_heads + shape.value_heads + (shape.value_heads + kWarpLanes - 1) / kWarpLanes;
  const dim3 grid((units + kWarps - 1) / kWarps, args.pass.rows);
  HEARTH_RETURN_IF_ERROR(LaunchOverlapping("launch of the convolution", GdnConvolveKernel,
                                           {.blocks = grid, .threads = kWarps * kWarpLanes}, stream,
                                           args));
  return LaunchRingStore(args.pass, ConvRing{args.layer}, args.in.projected, shape.channels(),
                         stream);
}

}  // namespace hearth
