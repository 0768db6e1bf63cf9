// The kernel of gpu_kernels/ops/dense/rotate_quantize.h. A warp rotates 128 values at a time, four
// to a lane: pairs that stand 1 or 2 apart meet in a lane, the others by shuffles. The rotated row
// waits in shared memory for its scale.
#include "gpu_kernels/ops/dense/rotate_quantize.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/common/quantize_four.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "pack/format/xt_layout.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarpsMax = 32;
constexpr uint32_t kLaneValues = 4;
constexpr uint32_t kWarpValues = 32 * kLaneValues;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr uint32_t kGridRowsMax = 1u << 30;

// RotationSignBits of pack/format/xt_layout.h.
__device__ inline uint32_t SignBits(uint32_t first) {
  uint64_t z = (uint64_t{first / 32} + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

// The butterflies of four values of this lane; spans below `block` values.
__device__ inline void Rotate(float (&v)[kLaneValues], uint32_t lane, uint32_t block) {
  const float a = __fadd_rn(v[0], v[1]);
  const float b = __fsub_rn(v[0], v[1]);
  const float c = __fadd_rn(v[2], v[3]);
  const float d = __fsub_rn(v[2], v[3]);
  v[0] = __fadd_rn(a, c);
  v[1] = __fadd_rn(b, d);
  v[2] = __fsub_rn(a, c);
  v[3] = __fsub_rn(b, d);
  for (uint32_t apart = 1; apart * kLaneValues < block; apart *= 2) {
    const bool upper = (lane & apart) != 0;
#pragma unroll
    for (uint32_t i = 0; i < kLaneValues; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, v[i], apart);
      v[i] = upper ? __fsub_rn(other, v[i]) : __fadd_rn(v[i], other);
    }
  }
}

// grid: rows of x. Shared memory: one row, rotated.
__global__ void __launch_bounds__(32 * kWarpsMax)
    RotateQuantizeKernel(const RotateQuantizeArgs args, uint32_t block, float factor) {
  extern __shared__ float4 rotated[];
  __shared__ uint32_t warp_magnitude[kWarpsMax];
  __shared__ int32_t warp_sum[kWarpsMax];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t warps = blockDim.x / 32;
  const float* x = args.x + size_t{blockIdx.x} * args.x_stride;
  uint32_t magnitude = 0;  // as integers, magnitudes keep their order and NaN is the largest
  for (uint32_t first = warp * kWarpValues; first < args.cols; first += warps * kWarpValues) {
    const uint32_t col = first + lane * kLaneValues;
    const bool valid = col < args.cols;
    const float4 from = valid ? *reinterpret_cast<const float4*>(x + col) : float4{0, 0, 0, 0};
    float v[kLaneValues] = {from.x, from.y, from.z, from.w};
    const uint32_t signs = SignBits(col & ~31u) >> (col % 32);
#pragma unroll
    for (uint32_t i = 0; i < kLaneValues; ++i) {
      v[i] = __fmul_rn((signs >> i & 1u) != 0 ? -1.0f : 1.0f, v[i]);
    }
    Rotate(v, lane, block);
#pragma unroll
    for (uint32_t i = 0; i < kLaneValues; ++i) {
      v[i] = __fmul_rn(v[i], factor);
      magnitude = max(magnitude, valid ? __float_as_uint(v[i]) & 0x7FFFFFFFu : 0u);
    }
    if (valid) rotated[col / kLaneValues] = {v[0], v[1], v[2], v[3]};
  }
  magnitude = __reduce_max_sync(kAllLanes, magnitude);
  if (lane == 0) warp_magnitude[warp] = magnitude;
  __syncthreads();
  magnitude = __reduce_max_sync(kAllLanes, lane < warps ? warp_magnitude[lane] : 0u);
  const float scale = QuantizationRatio(magnitude);
  int32_t sum = 0;
  auto* q = reinterpret_cast<char4*>(args.q + size_t{blockIdx.x} * args.cols);
  for (uint32_t i = threadIdx.x; i < args.cols / kLaneValues; i += blockDim.x) {
    const float4 v = rotated[i];
    q[i] = QuantizeFour(v, scale, &sum);
  }
  sum = __reduce_add_sync(kAllLanes, sum);
  if (lane == 0) warp_sum[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = __reduce_add_sync(kAllLanes, lane < warps ? warp_sum[lane] : 0);
  if (lane == 0) {
    args.scale[blockIdx.x] = scale;
    args.sum[blockIdx.x] = sum;
  }
}

bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace

absl::Status LaunchRotateQuantizeRows(const RotateQuantizeArgs& args, CudaStreamView stream) {
  if (args.rows == 0 || args.rows > kGridRowsMax || args.cols == 0 ||
      args.cols % kXtBlockCols != 0 || args.cols > kRotateQuantizeColsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rotation: 1 to ", kGridRowsMax, " rows of a multiple of ", kXtBlockCols, ", at most ",
        kRotateQuantizeColsMax, " columns; found ", args.rows, " rows of ", args.cols));
  }
  if (!Aligned(args.x, 16) || args.x_stride % 4 != 0 || args.x_stride < args.cols ||
      !Aligned(args.q, 4)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rotation: x lies on 16 bytes with a stride that is a multiple of 4, at least ", args.cols,
        ", q on 4 bytes; the stride is ", args.x_stride));
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t warps = std::min(kWarpsMax, (args.cols + kWarpValues - 1) / kWarpValues);
  const uint32_t block = RotationBlock(args.cols);
  RotateQuantizeKernel<<<args.rows, 32 * warps, args.cols * sizeof(float), stream.get()>>>(
      args, block, RotationFactor(block));
  return CudaStatus(cudaGetLastError(), "launch of a rotation");
}

}  // namespace hearth
