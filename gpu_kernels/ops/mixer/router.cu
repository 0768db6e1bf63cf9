// The kernel of router.h: one warp for each row.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/router.h"
#include "gpu_kernels/ops/mixer/router_choice.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

template <uint32_t kPerLane>
__global__ void __launch_bounds__(kWarpLanes) RouterKernel(const GpuRouterArgs args) {
  __shared__ Candidate room[kWarpLanes];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  (void)ChooseExperts<kPerLane>(args, blockIdx.x, room);
}

}  // namespace

absl::Status LaunchRouter(const GpuRouterArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckRouter(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const LaunchShape shape = {.blocks = args.rows, .threads = kWarpLanes};
  constexpr std::string_view kWhat = "launch of the router's choice";
  if (args.expert_count <= 4 * kWarpLanes) {
    return LaunchOverlapping(kWhat, RouterKernel<4>, shape, stream, args);
  }
  if (args.expert_count <= 16 * kWarpLanes) {
    return LaunchOverlapping(kWhat, RouterKernel<16>, shape, stream, args);
  }
  return LaunchOverlapping(kWhat, RouterKernel<32>, shape, stream, args);
}

}  // namespace hearth
