// The kernels of gpu_kernels/ops/dense/quantize_rows.h: eight lanes for each block of 32
// activations where rows lie on 16 bytes, a warp for each block elsewhere.
#include "gpu_kernels/ops/dense/quantize_rows.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/quantize_four.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kGridRowsMax = 65'535;
constexpr uint32_t kWindowRows = 16;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// grid: (blocks of a row in fours, rows of x)
__global__ void __launch_bounds__(kThreads) QuantizeBlocksKernel(const QuantizeRowsArgs args) {
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

// Rows on 16 bytes, columns in fours. grid: (pieces of 128 columns in fours, rows of x)
__global__ void __launch_bounds__(kThreads) QuantizeFoursKernel(const QuantizeRowsArgs args) {
  const uint32_t blocks = (args.cols + kActivationBlockValues - 1) / kActivationBlockValues;
  const uint32_t fours = blocks * (kActivationBlockValues / 4);
  const uint32_t four = blockIdx.x * kThreads + threadIdx.x;
  const bool valid = four * 4 < args.cols;
  const float* row = args.x + size_t{blockIdx.y} * args.x_stride;
  const float4 x = valid ? reinterpret_cast<const float4*>(row)[four] : float4{0, 0, 0, 0};
  uint32_t magnitude = MagnitudeBits(x);
#pragma unroll
  for (uint32_t apart = 4; apart > 0; apart /= 2) {
    magnitude = max(magnitude, __shfl_xor_sync(kAllLanes, magnitude, apart));
  }
  const float scale = BlockScaleOf(magnitude);
  int32_t sum = 0;
  const char4 q = QuantizeFour(x, scale, &sum);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  if (four >= fours) return;
  const size_t at = size_t{blockIdx.y} * fours + four;
  reinterpret_cast<char4*>(args.q)[at] = q;
  if (four % 8 == 0) args.scale[at / 8] = scale;
  if (four % 4 == 0) args.sum16[at / 4] = sum;
}

bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
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
  const uint32_t blocks = ActivationBlocks(args.cols);
  // In a window the shorter kernel wins: what runs once costs its instructions' way.
  const bool in_fours = args.rows > kWindowRows && Aligned(args.x, 16) && Aligned(args.q, 4) &&
                        args.x_stride % 4 == 0 && args.cols % 4 == 0;
  if (in_fours) {
    constexpr uint32_t kBlocksAtOnce = kThreads * 4 / kActivationBlockValues;
    const dim3 grid((blocks + kBlocksAtOnce - 1) / kBlocksAtOnce, args.rows);
    QuantizeFoursKernel<<<grid, kThreads, 0, stream.get()>>>(args);
  } else {
    constexpr uint32_t kBlocksAtOnce = kThreads / 32;
    const dim3 grid((blocks + kBlocksAtOnce - 1) / kBlocksAtOnce, args.rows);
    QuantizeBlocksKernel<<<grid, kThreads, 0, stream.get()>>>(args);
  }
  return CudaStatus(cudaGetLastError(), "launch of a quantisation");
}

}  // namespace hearth
