// Row-major matrices of a few rows times many fp32 rows of x: bound by reading x. A warp takes two
// rows of x with all outputs of a matrix, its lanes 4 columns of every 128; plain fp32
// multiply-adds, added up over the lanes at the end.
#include <cuda_bf16.h>

#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/gemm_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 8;
constexpr uint32_t kWarpRows = 2;
constexpr uint32_t kLaneCols = 4;
constexpr uint32_t kWarpCols = 32 * kLaneCols;

template <MatrixFormat kFormat>
__device__ inline float4 LoadWeights(const std::byte* w, size_t at) {
  if constexpr (kFormat == MatrixFormat::kF32) {
    return __ldg(reinterpret_cast<const float4*>(reinterpret_cast<const float*>(w) + at));
  } else {
    const uint2 two = __ldg(reinterpret_cast<const uint2*>(w + at * 2));
    return {__uint_as_float(two.x << 16), __uint_as_float(two.x & 0xFFFF0000u),
            __uint_as_float(two.y << 16), __uint_as_float(two.y & 0xFFFF0000u)};
  }
}

__device__ inline float Dot4(float4 a, float4 b, float sum) {
  sum = __fmaf_rn(a.x, b.x, sum);
  sum = __fmaf_rn(a.y, b.y, sum);
  sum = __fmaf_rn(a.z, b.z, sum);
  return __fmaf_rn(a.w, b.w, sum);
}

// Outputs beyond output.rows are its last one again: nobody writes them.
template <uint32_t kOutputs, MatrixFormat kFormat>
__device__ void MultiplyRows(const GemmKernelArgs& args, const KernelOutput& output,
                             uint32_t first_row) {
  const uint32_t lane = threadIdx.x % 32;
  float sums[kWarpRows][kOutputs] = {};
  const float* x[kWarpRows];
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
    x[r] = args.x.x + size_t{min(first_row + r, args.rows - 1)} * args.x.x_stride;
  }
#pragma unroll 4
  for (uint32_t col = lane * kLaneCols; col < args.cols; col += kWarpCols) {
    float4 values[kWarpRows];
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      values[r] = *reinterpret_cast<const float4*>(x[r] + col);
    }
#pragma unroll
    for (uint32_t n = 0; n < kOutputs; ++n) {
      const float4 w =
          LoadWeights<kFormat>(output.w, size_t{min(n, output.rows - 1)} * args.cols + col);
#pragma unroll
      for (uint32_t r = 0; r < kWarpRows; ++r) sums[r][n] = Dot4(values[r], w, sums[r][n]);
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
#pragma unroll
    for (uint32_t n = 0; n < kOutputs; ++n) {
      float sum = sums[r][n];
#pragma unroll
      for (uint32_t offset = 16; offset > 0; offset /= 2) {
        sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, offset));
      }
      if (lane == 0 && first_row + r < args.rows) WriteOutput(output, n, first_row + r, sum);
    }
  }
}

// grid: (groups of rows, matrices).
__global__ void __launch_bounds__(kWarps * 32)
    GemmNarrowKernel(const __grid_constant__ GemmKernelArgs args) {
  const KernelOutput& output = args.outputs[blockIdx.y];
  const uint32_t first_row = (blockIdx.x * kWarps + threadIdx.x / 32) * kWarpRows;
  if (first_row >= args.rows) return;
  const bool is_bf16 = output.format == MatrixFormat::kBf16;
  if (output.rows == 1) {
    return is_bf16 ? MultiplyRows<1, MatrixFormat::kBf16>(args, output, first_row)
                   : MultiplyRows<1, MatrixFormat::kF32>(args, output, first_row);
  }
  return is_bf16 ? MultiplyRows<kNarrowRowsMax, MatrixFormat::kBf16>(args, output, first_row)
                 : MultiplyRows<kNarrowRowsMax, MatrixFormat::kF32>(args, output, first_row);
}

}  // namespace

absl::Status LaunchGemmNarrow(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                              uint32_t rows, uint32_t cols, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  constexpr uint32_t kRows = kWarps * kWarpRows;
  const dim3 grid((rows + kRows - 1) / kRows, static_cast<uint32_t>(outputs.size()));
  GemmNarrowKernel<<<grid, kWarps * 32, 0, stream.get()>>>(
      GemmKernelArgsOf(outputs, GemmTileMap(), x, rows, cols));
  return CudaStatus(cudaGetLastError(), "launch of a narrow prompt product");
}

}  // namespace hearth
