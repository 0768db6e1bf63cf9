// The kernel of activate_quantize.h: eight lanes for each block of 32 values.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;

__device__ inline float4 Activated(const GpuActivateQuantizeArgs& args, size_t at) {
  const float4 x = LoadVector(args.x, at);
  switch (args.function) {
    case RowFunction::kNone:
      return x;
    case RowFunction::kSilu:
      return MapVector(x, [&](float v) { return SiluOf(__fmul_rn(v, args.scale)); });
    case RowFunction::kSwiglu:
      return MapVector(x, LoadVector(args.up, at),
                       [](float gate, float up) { return __fmul_rn(SiluOf(gate), up); });
  }
  return x;
}

// Block (columns, row).
__global__ void __launch_bounds__(kThreads)
    ActivateQuantizeKernel(const GpuActivateQuantizeArgs args) {
  AwaitLaunchBefore();
  const uint32_t row = blockIdx.y;
  const uint32_t vectors = args.cols / 4;
  const uint32_t padded = (vectors + kBlockVectors - 1) / kBlockVectors * kBlockVectors;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  float4 y = {0, 0, 0, 0};
  if (i < vectors) {
    y = Activated(args, size_t{row} * (args.x_stride / 4) + i);
    if (args.y != nullptr) StoreVector(args.y, size_t{row} * vectors + i, y);
  }
  AllowLaunchAfter();
  if (args.quantized.q != nullptr) {
    StoreQuantized(args.quantized, size_t{row} * padded + i, y, i < padded);
  }
}

}  // namespace

absl::Status LaunchActivateQuantize(const GpuActivateQuantizeArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckActivateQuantize(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t padded = ActivationBlocks(args.cols) * kBlockVectors;
  const dim3 grid((padded + kThreads - 1) / kThreads, args.rows);
  return LaunchOverlapping("launch of an activation with quantisation", ActivateQuantizeKernel,
                           {.blocks = grid, .threads = kThreads}, stream, args);
}

}  // namespace hearth
