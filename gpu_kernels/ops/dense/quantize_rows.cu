// The kernel of gpu_kernels/ops/dense/quantize_rows.h: one warp for each block of 32 activations.
#include "gpu_kernels/ops/dense/quantize_rows.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kGridRowsMax = 65'535;

// grid: (blocks of a row in fours, rows of x)
__global__ void __launch_bounds__(kThreads) QuantizeRowsKernel(const QuantizeRowsArgs args) {
  const uint32_t blocks = (args.cols + kActivationBlockValues - 1) / kActivationBlockValues;
  const uint32_t block = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (block >= blocks) return;  // the whole warp
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t col = block * kActivationBlockValues + lane;
  const bool valid = col < args.cols;
  const float x = valid ? args.x[size_t{blockIdx.y} * args.x_stride + col] : 0.0f;
  const QuantizedLane quantized = QuantizeLane(x, valid);
  const size_t at = size_t{blockIdx.y} * blocks + block;
  args.q[at * kActivationBlockValues + lane] = static_cast<int8_t>(quantized.q);
  if (lane == 0) args.scale[at] = quantized.scale;
  if (lane % 16 == 0) args.sum16[at * 2 + lane / 16] = quantized.sum16;
}

}  // namespace

absl::Status LaunchQuantizeRows(const QuantizeRowsArgs& args, CudaStreamView stream) {
  if (args.rows == 0 || args.rows > kGridRowsMax || args.cols == 0 || args.x_stride < args.cols) {
    return absl::InvalidArgumentError(
        absl::StrCat("quantisation: 1 to ", kGridRowsMax, " rows of at least one column whose ",
                     "stride holds them; found ", args.rows, " rows of ", args.cols,
                     " columns, stride ", args.x_stride));
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  constexpr uint32_t kBlocksAtOnce = kThreads / 32;
  const dim3 grid((ActivationBlocks(args.cols) + kBlocksAtOnce - 1) / kBlocksAtOnce, args.rows);
  QuantizeRowsKernel<<<grid, kThreads, 0, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of a quantisation");
}

}  // namespace hearth
