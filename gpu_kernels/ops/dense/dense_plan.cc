#include "gpu_kernels/ops/dense/dense_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

absl::Status CheckOutput(const DenseMatmulArgs& args, uint32_t index) {
  const MatmulOutput& output = args.outputs[index];
  const bool q8 = output.w.format == MatrixFormat::kQ8;
  const auto refuse = [index](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("dense product, output ", index, ": ", what...));
  };
  if (output.w.cols != args.cols) {
    return refuse("its matrix has ", output.w.cols, " columns, x has ", args.cols,
                  "; matrices of one launch share x");
  }
  if (output.w.rows == 0 || output.w.data == nullptr || !Aligned(output.w.data, 64)) {
    return refuse("a matrix has at least one row and lies on 64 bytes; found ", output.w.rows,
                  " rows at address ", reinterpret_cast<uintptr_t>(output.w.data));
  }
  if (output.y == nullptr || output.y_stride < output.w.rows) {
    return refuse("y of ", output.w.rows, " values a row needs an address and such a stride; the ",
                  "stride is ", output.y_stride);
  }
  const uint32_t multiple = q8 ? kQ8BlockValues : 8;
  if (args.cols % multiple != 0) {
    return refuse("columns are a multiple of ", multiple, " in this format; found ", args.cols);
  }
  if (q8 && (args.x.q == nullptr || args.x.scale == nullptr || !Aligned(args.x.q, 16))) {
    return refuse("a Q8 matrix reads quantised rows on 16 bytes; call LaunchQuantizeRows first");
  }
  if (!q8 && (args.x.x == nullptr || args.x.x_stride < args.cols || args.x.x_stride % 4 != 0 ||
              !Aligned(args.x.x, 16))) {
    return refuse(
        "a row-major matrix reads fp32 rows on 16 bytes with a stride that is a multiple ",
        "of 4, at least ", args.cols, "; the stride is ", args.x.x_stride);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDenseProduct(const DenseMatmulArgs& args, uint32_t rows_max) {
  if (args.rows == 0 || args.rows > rows_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("dense product: 1 to ", rows_max, " rows of x, found ", args.rows));
  }
  if (args.output_count == 0 || args.output_count > kMatmulOutputsMax) {
    return absl::InvalidArgumentError(absl::StrCat("dense product: 1 to ", kMatmulOutputsMax,
                                                   " matrices, found ", args.output_count));
  }
  if (args.cols == 0 || args.cols > kMatmulColsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("dense product: 1 to ", kMatmulColsMax, " columns, found ", args.cols));
  }
  for (uint32_t i = 0; i < args.output_count; ++i) {
    HEARTH_RETURN_IF_ERROR(CheckOutput(args, i));
  }
  return absl::OkStatus();
}

uint32_t MatmulSegments(uint32_t cols) {
  constexpr uint32_t kChunksWanted =
      2;  // of a warp: the second is on its way when the first is used
  const uint32_t chunks = CeilDiv(cols, kMatmulChunkCols);
  const uint32_t segments = std::min(kMatmulSegmentsMax, CeilDiv(chunks, kChunksWanted));
  return CeilDiv(chunks, CeilDiv(chunks, segments));  // no warp has two chunks more than another
}

uint32_t MatmulRowsClass(uint32_t rows) {
  return rows <= 1 ? 1 : rows <= 4 ? 4 : rows <= 8 ? 8 : 16;
}

MatmulSharedLayout LayOutMatmul(const DenseMatmulCut& cut, uint32_t rows, uint32_t cols) {
  const bool has_q8 = cut.band_count > 0;
  const uint32_t blocks = cols / kQ8BlockValues;
  const uint32_t padded_rows = rows <= kTensorRows ? kTensorRows : 2 * kTensorRows;
  const uint32_t unit_sums =
      has_q8 ? rows * kBandRows : std::min(MatmulRowsClass(rows), kTensorRows) * kRowUnitRows;
  MatmulSharedLayout layout;
  layout.sums_offset_bytes =
      has_q8 ? blocks * (MatmulRowsClass(rows) * kQ8BlockValues + padded_rows * 4) : 0;
  layout.slots_offset_bytes =
      layout.sums_offset_bytes +
      (cut.segments == 1 ? 0 : 2 * cut.teams * cut.segments * unit_sums * 4);
  layout.bytes = layout.slots_offset_bytes + cut.threads / 32 * cut.slots * kMatmulSlotBytes;
  return layout;
}

uint32_t MatmulClusterBlocks(const DenseMatmulCut& cut, uint32_t rows, const GpuLimits& gpu) {
  constexpr uint32_t kSegmentsMin = 8;
  const uint32_t units = cut.band_count + cut.row_unit_count;
  const uint32_t units_max =
      rows == 1 ? 2 * gpu.multiprocessor_count : gpu.multiprocessor_count / 2;
  if (cut.segments < kSegmentsMin || units > units_max) return 0;
  return CeilDiv(cut.segments, kClusterWarps);
}

ClusterSharedLayout LayOutClusterMatmul(const DenseMatmulCut& cut, uint32_t rows) {
  const uint32_t blocks =
      cut.places / kMatmulPlacesPerChunk * (kMatmulChunkCols / kQ8BlockValues);  // of a warp
  const uint32_t padded_rows = rows <= kTensorRows ? kTensorRows : 2 * kTensorRows;
  ClusterSharedLayout layout;
  layout.x_offset_bytes = cut.places * kMatmulSlotBytes;
  layout.warp_bytes =
      layout.x_offset_bytes + blocks * (MatmulRowsClass(rows) * kQ8BlockValues + padded_rows * 4);
  layout.unit_values =
      std::max(rows * kBandRows, std::min(MatmulRowsClass(rows), kTensorRows) * kRowUnitRows);
  layout.sums_offset_bytes = kClusterWarps * layout.warp_bytes;
  layout.bytes = layout.sums_offset_bytes + cut.segments * layout.unit_values * 4;
  return layout;
}

absl::StatusOr<DenseMatmulCut> CutDenseMatmul(const DenseMatmulArgs& args, const GpuLimits& gpu) {
  constexpr uint32_t kWarpsWanted = 4;  // of a block of threads
  HEARTH_RETURN_IF_ERROR(CheckDenseProduct(args, kMatmulRowsMax));
  DenseMatmulCut cut;
  cut.segments = MatmulSegments(args.cols);
  cut.teams = std::max(1u, kWarpsWanted / cut.segments);
  cut.threads = 32 * cut.segments * cut.teams;
  cut.places = kMatmulPlacesPerChunk * CeilDiv(CeilDiv(args.cols, kMatmulChunkCols), cut.segments);
  for (uint32_t i = 0; i < args.output_count; ++i) {
    const DeviceMatrix& w = args.outputs[i].w;
    if (w.format == MatrixFormat::kQ8) {
      cut.band_count += BandCount(w.rows);
    } else {
      cut.row_unit_count += CeilDiv(w.rows, kRowUnitRows);
    }
  }
  uint32_t bytes = 0;
  for (cut.rows_max = args.rows; cut.rows_max > 0;
       cut.rows_max = cut.rows_max > kTensorRows ? kTensorRows : cut.rows_max / 2) {
    for (cut.slots = kMatmulSlotsMax; cut.slots >= kMatmulSlotsMin; cut.slots /= 2) {
      bytes = LayOutMatmul(cut, cut.rows_max, args.cols).bytes;
      if (bytes <= gpu.shared_bytes_per_block_max) return cut;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dense product of ", args.cols, " columns: a row takes ", bytes,
                   " bytes of shared memory, the GPU has ", gpu.shared_bytes_per_block_max));
}

uint32_t MatmulRowJobs(const DenseMatmulCut& cut, uint32_t rows) {
  return CeilDiv(cut.row_unit_count * CeilDiv(rows, kTensorRows), cut.teams);
}

uint32_t MatmulRounds(const DenseMatmulCut& cut, uint32_t rows, uint32_t blocks) {
  return CeilDiv(CeilDiv(cut.band_count, cut.teams) + MatmulRowJobs(cut, rows), blocks);
}

uint32_t MatmulBlocks(const DenseMatmulCut& cut, uint32_t rows, uint32_t resident_blocks,
                      const GpuLimits& gpu) {
  const uint32_t jobs = CeilDiv(cut.band_count, cut.teams) + MatmulRowJobs(cut, rows);
  const uint32_t room = std::max(1u, gpu.multiprocessor_count) * std::max(1u, resident_blocks);
  return CeilDiv(jobs, CeilDiv(jobs, room));
}

}  // namespace hearth
