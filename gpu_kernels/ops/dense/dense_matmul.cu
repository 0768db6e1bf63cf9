// The kernel of gpu_kernels/ops/dense/dense_matmul.h: one grid over the units of all matrices.
// Bound by bandwidth at 1 to 16 rows; the cut is in dense_plan.h.
#include "gpu_kernels/ops/dense/dense_matmul.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/band_products.cuh"
#include "gpu_kernels/ops/dense/dense_plan.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "gpu_kernels/ops/dense/row_products.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// For up to kClass rows of x.
template <int kClass>
__global__ void __launch_bounds__(kMatmulThreadsMax)
    DenseMatmulKernel(const __grid_constant__ MatmulKernelArgs args) {
  constexpr int kGroups = kClass > kTensorRows ? 2 : 1;
  constexpr int kRowsAtOnce = kClass > kTensorRows ? kTensorRows : kClass;
  extern __shared__ uint4 shared[];
  const uint32_t warp = threadIdx.x / 32;
  const TeamPlace place = {warp / args.segments, warp % args.segments, threadIdx.x % 32};
  const bool has_q8 = args.q8_output_count > 0;
  const uint32_t blocks = has_q8 ? args.cols / kQ8BlockValues : 0;
  SegmentSums segment_sums = {
      reinterpret_cast<float*>(shared) +
          blocks * (args.rows * (kQ8BlockValues / 4) + kGroups * kTensorRows),
      has_q8 ? args.rows * kBandRows : static_cast<uint32_t>(kClass) * kRowUnitRows};
  if (has_q8) BandProducts<kGroups>(args, place, shared, &segment_sums);
  if (args.row_unit_count > 0) RowProducts<kRowsAtOnce>(args, place, &segment_sums);
}

using Kernel = void (*)(MatmulKernelArgs);

Kernel KernelOf(uint32_t rows_class) {
  switch (rows_class) {
    case 1:
      return DenseMatmulKernel<1>;
    case 4:
      return DenseMatmulKernel<4>;
    case 8:
      return DenseMatmulKernel<8>;
    default:
      HEARTH_CHECK(rows_class == kMatmulRowsMax);
      return DenseMatmulKernel<16>;
  }
}

// Q8 matrices first, each with its first unit.
MatmulKernelArgs KernelArgsOf(const DenseMatmulArgs& args, const DenseMatmulCut& cut) {
  MatmulKernelArgs k = {};
  for (const bool q8 : {true, false}) {
    uint32_t unit = 0;
    for (uint32_t i = 0; i < args.output_count; ++i) {
      const MatmulOutput& o = args.outputs[i];
      if ((o.w.format == MatrixFormat::kQ8) != q8) continue;
      k.outputs[k.output_count++] = {o.w.data,   o.y,          o.y_stride, o.w.rows,   unit,
                                     o.w.format, o.activation, o.scale_in, o.scale_out};
      unit += q8 ? BandCount(o.w.rows) : (o.w.rows + kRowUnitRows - 1) / kRowUnitRows;
    }
    if (q8) k.q8_output_count = k.output_count;
  }
  k.cols = args.cols;
  k.segments = cut.segments;
  k.teams = cut.teams;
  k.band_count = cut.band_count;
  k.row_unit_count = cut.row_unit_count;
  return k;
}

// Rows [first, first + count) of x and y.
void SelectRows(const DenseMatmulArgs& args, uint32_t first, uint32_t count, MatmulKernelArgs* k) {
  k->rows = count;
  k->x = args.x;
  if (args.x.x != nullptr) k->x.x += size_t{first} * args.x.x_stride;
  if (args.x.q != nullptr) {
    k->x.q += size_t{first} * args.cols;
    k->x.scale += size_t{first} * (args.cols / kQ8BlockValues);
  }
  for (uint32_t i = 0; i < k->output_count; ++i) {
    k->outputs[i].y += size_t{first} * k->outputs[i].y_stride;
  }
}

}  // namespace

absl::Status LaunchDenseMatmul(const DenseMatmulArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const GpuLimits gpu, CurrentLimits(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const DenseMatmulCut cut, CutDenseMatmul(args, gpu));
  for (uint32_t first = 0; first < args.rows; first += cut.rows_max) {
    const uint32_t count = std::min(cut.rows_max, args.rows - first);
    MatmulKernelArgs kernel_args = KernelArgsOf(args, cut);
    SelectRows(args, first, count, &kernel_args);
    const Kernel kernel = KernelOf(MatmulRowsClass(count));
    const uint32_t shared_bytes =
        MatmulSharedBytes(count, args.cols, cut.segments, cut.teams, cut.band_count > 0);
    HEARTH_RETURN_IF_ERROR(AllowSharedBytes(reinterpret_cast<const void*>(kernel), shared_bytes));
    HEARTH_ASSIGN_OR_RETURN(
        const uint32_t resident,
        ResidentBlocks(reinterpret_cast<const void*>(kernel), cut.threads, shared_bytes));
    kernel<<<MatmulBlocks(cut, count, resident, gpu), cut.threads, shared_bytes, stream.get()>>>(
        kernel_args);
    HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "launch of a dense product"));
  }
  return absl::OkStatus();
}

}  // namespace hearth
