// The kernel of activate_quantize.h: eight lanes for each block of 32 values.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/activate_quantize.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;

// Block (columns, row).
__global__ void __launch_bounds__(kThreads)
    ActivateQuantizeKernel(const GpuActivateQuantizeArgs args) {
  AwaitLaunchBefore();
  ActivateVector(args, blockIdx.y, blockIdx.x * kThreads + threadIdx.x, true);
  AllowLaunchAfter();
}

}  // namespace

absl::Status LaunchActivateQuantize(const GpuActivateQuantizeArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckActivateQuantize(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const dim3 grid((PaddedVectors(args.cols) + kThreads - 1) / kThreads, args.rows);
  return LaunchOverlapping("launch of an activation with quantisation", ActivateQuantizeKernel,
                           {.blocks = grid, .threads = kThreads}, stream, args);
}

}  // namespace hearth
