// The kernel of gpu_kernels/ops/dense/dense_matmul.h: one grid over the units of all matrices.
// Bound by bandwidth at 1 to 16 rows; the cut is in dense_plan.h.
#include "gpu_kernels/ops/dense/dense_matmul.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/dense/band_products.cuh"
#include "gpu_kernels/ops/dense/cluster_products.cuh"
#include "gpu_kernels/ops/dense/dense_plan.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "gpu_kernels/ops/dense/row_products.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// For up to kClass rows of x.
template <int kClass, int kSlots>
__global__ void __launch_bounds__(kMatmulThreadsMax)
    DenseMatmulKernel(const __grid_constant__ MatmulKernelArgs args) {
  constexpr int kRowsAtOnce = kClass > kTensorRows ? kTensorRows : kClass;
  extern __shared__ uint4 shared[];
  const uint32_t warp = threadIdx.x / 32;
  const TeamPlace place = {warp / args.segments, warp % args.segments, threadIdx.x % 32};
  auto* bytes = reinterpret_cast<std::byte*>(shared);
  std::byte* ring = bytes + args.layout.slots_offset_bytes + warp * kSlots * kMatmulSlotBytes;
  SegmentSums segment_sums = {reinterpret_cast<float*>(bytes + args.layout.sums_offset_bytes),
                              args.band_count > 0
                                  ? args.rows * kBandRows
                                  : static_cast<uint32_t>(kRowsAtOnce) * kRowUnitRows};
  uint32_t job = blockIdx.x;
  if (job < args.row_jobs) {
    RowProducts<kRowsAtOnce, kSlots>(args, place, ring, &segment_sums);
    while (job < args.row_jobs) job += gridDim.x;
  }
  const uint32_t first_band = (job - args.row_jobs) * args.teams;
  if (first_band < args.band_count) {
    BandProducts<kClass, kSlots>(args, place, first_band, shared, ring, &segment_sums);
  }
}

// For up to kClass rows of x: a cluster of `cluster_blocks` blocks for each unit, row-major units
// first.
template <int kClass>
__global__ void __launch_bounds__(32 * kClusterWarps)
    ClusterMatmulKernel(const __grid_constant__ MatmulKernelArgs args,
                        const ClusterSharedLayout layout, uint32_t cluster_blocks) {
  constexpr int kRowsAtOnce = kClass > kTensorRows ? kTensorRows : kClass;
  extern __shared__ uint4 shared[];
  ArriveAtCluster();
  const uint32_t warp = threadIdx.x / 32;
  const TeamPlace place = {0, ClusterRank() * kClusterWarps + warp, threadIdx.x % 32};
  auto* bytes = reinterpret_cast<std::byte*>(shared);
  const ClusterRoom room = {
      bytes + warp * layout.warp_bytes, bytes + warp * layout.warp_bytes + layout.x_offset_bytes,
      reinterpret_cast<float*>(bytes + layout.sums_offset_bytes), layout.unit_values};
  const uint32_t unit = blockIdx.x / cluster_blocks;
  if (unit < args.row_jobs) {
    ClusterRows<kRowsAtOnce>(args, place, unit, room);
  } else {
    ClusterBand<kClass>(args, place, unit - args.row_jobs, room);
  }
}

using ClusterKernel = void (*)(MatmulKernelArgs, ClusterSharedLayout, uint32_t);

ClusterKernel ClusterKernelOf(uint32_t rows_class) {
  switch (rows_class) {
    case 1:
      return ClusterMatmulKernel<1>;
    case 4:
      return ClusterMatmulKernel<4>;
    case 8:
      return ClusterMatmulKernel<8>;
    default:
      return ClusterMatmulKernel<16>;
  }
}

using Kernel = void (*)(MatmulKernelArgs);

template <int kSlots>
Kernel KernelOf(uint32_t rows_class) {
  switch (rows_class) {
    case 1:
      return DenseMatmulKernel<1, kSlots>;
    case 4:
      return DenseMatmulKernel<4, kSlots>;
    case 8:
      return DenseMatmulKernel<8, kSlots>;
    default:
      HEARTH_CHECK(rows_class == kMatmulRowsMax);
      return DenseMatmulKernel<16, kSlots>;
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
  k.places = cut.places;
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

// One launch of all rows.
absl::Status LaunchClusters(const DenseMatmulArgs& args, const DenseMatmulCut& cut,
                            uint32_t cluster_blocks, CudaStreamView stream) {
  MatmulKernelArgs kernel_args = KernelArgsOf(args, cut);
  SelectRows(args, 0, args.rows, &kernel_args);
  kernel_args.row_jobs = cut.row_unit_count * ((args.rows + kTensorRows - 1) / kTensorRows);
  const ClusterSharedLayout layout = LayOutClusterMatmul(cut, args.rows);
  const ClusterKernel kernel = ClusterKernelOf(MatmulRowsClass(args.rows));
  HEARTH_RETURN_IF_ERROR(AllowSharedBytes(reinterpret_cast<const void*>(kernel), layout.bytes));
  return LaunchOverlapping("launch of a dense product in clusters", kernel,
                           {.blocks = (kernel_args.row_jobs + cut.band_count) * cluster_blocks,
                            .threads = 32 * kClusterWarps,
                            .shared_bytes = layout.bytes,
                            .cluster_blocks = cluster_blocks},
                           stream, kernel_args, layout, cluster_blocks);
}

// A kernel of one launch, and its grid.
struct Variant {
  DenseMatmulCut cut;
  Kernel kernel = nullptr;
  uint32_t blocks = 0;
  uint32_t rounds = 0;  // of units for each block
  uint32_t shared_bytes = 0;
};

absl::StatusOr<Variant> VariantOf(const DenseMatmulCut& cut, const GpuLimits& gpu, uint32_t rows,
                                  uint32_t cols) {
  const uint32_t rows_class = MatmulRowsClass(rows);
  Variant v{.cut = cut, .shared_bytes = LayOutMatmul(cut, rows, cols).bytes};
  v.kernel = cut.slots == kMatmulSlotsMax ? KernelOf<kMatmulSlotsMax>(rows_class)
                                          : KernelOf<kMatmulSlotsMin>(rows_class);
  const auto* address = reinterpret_cast<const void*>(v.kernel);
  HEARTH_RETURN_IF_ERROR(AllowSharedBytes(address, v.shared_bytes));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t resident,
                          ResidentBlocks(address, cut.threads, v.shared_bytes));
  v.blocks = MatmulBlocks(cut, rows, resident, gpu);
  v.rounds = MatmulRounds(cut, rows, v.blocks);
  return v;
}

// One launch: rows [first, first + count). With fewer slots a multiprocessor may hold more blocks:
// where that leaves one round instead of several, they are better.
absl::Status LaunchRows(const DenseMatmulArgs& args, const DenseMatmulCut& cut,
                        const GpuLimits& gpu, uint32_t first, uint32_t count,
                        CudaStreamView stream) {
  HEARTH_ASSIGN_OR_RETURN(Variant variant, VariantOf(cut, gpu, count, args.cols));
  if (cut.slots > kMatmulSlotsMin && variant.rounds > 1) {
    DenseMatmulCut small = cut;
    small.slots = kMatmulSlotsMin;
    HEARTH_ASSIGN_OR_RETURN(const Variant other, VariantOf(small, gpu, count, args.cols));
    if (other.rounds == 1) variant = other;
  }
  MatmulKernelArgs kernel_args = KernelArgsOf(args, variant.cut);
  SelectRows(args, first, count, &kernel_args);
  kernel_args.layout = LayOutMatmul(variant.cut, count, args.cols);
  kernel_args.row_jobs = MatmulRowJobs(variant.cut, count);
  return LaunchOverlapping(
      "launch of a dense product", variant.kernel,
      {.blocks = variant.blocks, .threads = cut.threads, .shared_bytes = variant.shared_bytes},
      stream, kernel_args);
}

}  // namespace

absl::Status LaunchDenseMatmul(const DenseMatmulArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const GpuLimits gpu, CurrentLimits(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const DenseMatmulCut cut, CutDenseMatmul(args, gpu));
  HEARTH_ASSIGN_OR_RETURN(const bool clusters, HasClusters(stream.gpu()));
  const uint32_t cluster_blocks = clusters ? MatmulClusterBlocks(cut, args.rows, gpu) : 0;
  if (cluster_blocks != 0) return LaunchClusters(args, cut, cluster_blocks, stream);
  for (uint32_t first = 0; first < args.rows; first += cut.rows_max) {
    const uint32_t count = std::min(cut.rows_max, args.rows - first);
    HEARTH_RETURN_IF_ERROR(LaunchRows(args, cut, gpu, first, count, stream));
  }
  return absl::OkStatus();
}

}  // namespace hearth
