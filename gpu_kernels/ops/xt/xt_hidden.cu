// What becomes of sums: EnqueueXtHidden and EnqueueXtOutput of gpu_kernels/ops/xt/xt_walk.h.
// Hidden: one block of threads for each (row, item). A warp turns 128 values,
// four neighbours in each lane, so that the butterflies of a rotation block stay in it; the values
// of the row then wait in shared memory for the row's largest.
#include <cuda_fp16.h>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/xt/xt_walk.h"
#include "pack/format/xt_code.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr uint32_t kHiddenThreads = 256;
constexpr uint32_t kWarpCols = 128;
constexpr uint32_t kLaneCols = kWarpCols / 32;

// RotationSignBits of pack/format/xt_layout.h.
__device__ inline uint32_t SignBitsOf(uint32_t first) {
  uint64_t z = (uint64_t{first / 32} + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

// The number that a sum stands for (cpu_kernels/ops/xt.h); `offset` is kXtLevelOffset * sum of q.
__device__ inline float NumberOf(int32_t sum, int32_t offset, float x_scale, __half row_scale,
                                 float multiplier) {
  const float factor = __fmul_rn(__half2float(row_scale), multiplier);
  return __fmul_rn(__fmul_rn(__int2float_rn(sum - offset), x_scale), factor);
}

// What lies in memory for four neighbouring rows of a projection.
struct FourSums {
  int4 sums;
  __half scales[4];
  float multiplier;

  // Leaves the sums at zero.
  __device__ FourSums(int4* at, const std::byte* row_scales, const std::byte* multiplier_at)
      : sums(*at), multiplier(*reinterpret_cast<const float*>(multiplier_at)) {
    *reinterpret_cast<uint2*>(scales) = *reinterpret_cast<const uint2*>(row_scales);
    *at = {0, 0, 0, 0};
  }
  __device__ void Numbers(int32_t offset, float x_scale, float (&values)[4]) const {
    values[0] = NumberOf(sums.x, offset, x_scale, scales[0], multiplier);
    values[1] = NumberOf(sums.y, offset, x_scale, scales[1], multiplier);
    values[2] = NumberOf(sums.z, offset, x_scale, scales[2], multiplier);
    values[3] = NumberOf(sums.w, offset, x_scale, scales[3], multiplier);
  }
};

// The butterflies of 128 columns in blocks of `block`, spans ascending.
__device__ inline void Butterflies(float (&v)[kLaneCols], uint32_t block) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int span = 1; span < 4; span *= 2) {
    if (span < block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & span) != 0) continue;
        const float a = v[i];
        const float b = v[i + span];
        v[i] = __fadd_rn(a, b);
        v[i + span] = __fsub_rn(a, b);
      }
    }
  }
  for (uint32_t span = 4; span < block; span *= 2) {
    const uint32_t lanes = span / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, v[i], lanes);
      v[i] = (lane & lanes) != 0 ? __fsub_rn(other, v[i]) : __fadd_rn(v[i], other);
    }
  }
}

// Fills `row` with rotated values; returns the largest magnitude's bits among this warp's.
__device__ uint32_t RotateRow(const XtHiddenArgs& args, const std::byte* blob, uint32_t entry,
                              float* row) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t largest = 0;
  for (uint32_t first = threadIdx.x / 32 * kWarpCols; first < args.width;
       first += kHiddenThreads / 32 * kWarpCols) {
    const uint32_t col = first + lane * kLaneCols;
    float v[kLaneCols] = {};
    if (col < args.width) {
      int4* sums = reinterpret_cast<int4*>(args.sums + uint64_t{entry} * 2 * args.width + col);
      const FourSums gate(sums, blob + args.scale_offset_bytes[0] + col * 2,
                          blob + args.multiplier_offset_bytes[0]);
      const FourSums up(sums + args.width / 4, blob + args.scale_offset_bytes[1] + col * 2,
                        blob + args.multiplier_offset_bytes[1]);
      const size_t x_row = args.entries[entry].x_row;
      const float x_scale = args.x_scale[x_row];
      const int32_t offset = kXtLevelOffset * args.x_sum[x_row];
      float gates[4];
      float ups[4];
      gate.Numbers(offset, x_scale, gates);
      up.Numbers(offset, x_scale, ups);
      const uint32_t signs = SignBitsOf(col & ~31u) >> (col & 31);
#pragma unroll
      for (int i = 0; i < static_cast<int>(kLaneCols); ++i) {
        const float h = __fmul_rn(SiluOf(gates[i]), ups[i]);
        v[i] = __fmul_rn((signs >> i & 1) != 0 ? -1.0f : 1.0f, h);
      }
    }
    Butterflies(v, args.rotation_block);
    if (col < args.width) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(kLaneCols); ++i) {
        v[i] = __fmul_rn(v[i], args.rotation_factor);
        largest = max(largest, __float_as_uint(v[i]) & 0x7FFFFFFFu);
        row[col + i] = v[i];
      }
    }
  }
  return __reduce_max_sync(kAllLanes, largest);
}

// grid: (rows_max, item_count_max); blocks of rows or items that there are not do nothing.
__global__ void __launch_bounds__(kHiddenThreads)
    XtHiddenKernel(const __grid_constant__ XtHiddenArgs args) {
  extern __shared__ float row[];  // width
  __shared__ uint32_t largest_of[kHiddenThreads / 32];
  __shared__ int32_t sum_of[kHiddenThreads / 32];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const ExpertFfnItem item = args.items[blockIdx.y];
  if (blockIdx.y >= XtItemCount(args.item_count, args.item_count_max)) return;
  if (blockIdx.x >= item.entry_count) return;
  const uint32_t entry = item.entry_begin + blockIdx.x;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t largest = RotateRow(args, item.blob, entry, row);
  if (threadIdx.x % 32 == 0) largest_of[warp] = largest;
  __syncthreads();
  uint32_t of_row = 0;
#pragma unroll
  for (const uint32_t of_warp : largest_of) of_row = max(of_row, of_warp);
  const float s = QuantizationRatio(of_row);
  int32_t sum = 0;
  for (uint32_t col = threadIdx.x; col < args.width; col += kHiddenThreads) {
    const int32_t q = QuantizeValue(row[col], s);
    args.q[uint64_t{entry} * args.width + col] = static_cast<int8_t>(q);
    sum += q;
  }
  sum = __reduce_add_sync(kAllLanes, sum);
  if (threadIdx.x % 32 == 0) sum_of[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int32_t total = 0;
#pragma unroll
  for (const int32_t of_warp : sum_of) total += of_warp;
  args.scale[entry] = s;
  args.sum[entry] = total;
}

constexpr uint32_t kOutputCols = 4 * kHiddenThreads;  // of a block

// grid: (hidden / kOutputCols, rows_max, item_count_max), as above.
__global__ void __launch_bounds__(kHiddenThreads)
    XtOutputKernel(const __grid_constant__ XtOutputArgs args) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const ExpertFfnItem item = args.items[blockIdx.z];
  if (blockIdx.z >= XtItemCount(args.item_count, args.item_count_max)) return;
  if (blockIdx.y >= item.entry_count) return;
  const uint32_t entry = item.entry_begin + blockIdx.y;
  const uint32_t row = (blockIdx.x * kHiddenThreads + threadIdx.x) * 4;
  if (row >= args.hidden) return;
  const FourSums down(reinterpret_cast<int4*>(args.sums + uint64_t{entry} * args.hidden + row),
                      item.blob + args.scale_offset_bytes + row * 2,
                      item.blob + args.multiplier_offset_bytes);
  float* y = args.y + uint64_t{args.entries[entry].y_row} * args.y_stride + row;
  float values[4];
  down.Numbers(kXtLevelOffset * args.h_sum[entry], args.h_scale[entry], values);
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = values[i];
}

}  // namespace

absl::Status EnqueueXtHidden(const XtHiddenArgs& args, CudaStreamView stream) {
  return LaunchOverlapping("XT hidden kernel", XtHiddenKernel,
                           {.blocks = dim3(args.rows_max, args.item_count_max),
                            .threads = dim3(kHiddenThreads),
                            .shared_bytes = args.width * 4},
                           stream, args);
}

absl::Status EnqueueXtOutput(const XtOutputArgs& args, CudaStreamView stream) {
  const uint32_t parts = (args.hidden + kOutputCols - 1) / kOutputCols;
  return LaunchOverlapping(
      "XT output kernel", XtOutputKernel,
      {.blocks = dim3(parts, args.rows_max, args.item_count_max), .threads = dim3(kHiddenThreads)},
      stream, args);
}

}  // namespace hearth
