// How the products of dense_matmul.h are cut into blocks of threads. Pure host arithmetic.
//
// The reduction is cut into chunks of 256 columns, and these are dealt to the warps of a team: warp
// s takes the chunks s, s + S, ... A team computes one unit at a time: a band of 16 rows of a Q8
// matrix, or 4 rows of a row-major one. S depends on the columns alone, so that an output's bits
// depend on neither the rows of x nor the other matrices of the launch.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"

namespace hearth {

inline constexpr uint32_t kMatmulChunkCols = 256;
inline constexpr uint32_t kMatmulSegmentsMax = 16;
inline constexpr uint32_t kMatmulThreadsMax = 32 * kMatmulSegmentsMax;
// A warp copies its weights ahead into slots of its own: 128 columns of a band, or 256 of four bf16
// rows.
inline constexpr uint32_t kMatmulPlacesPerChunk = 2;
inline constexpr uint32_t kMatmulSlotBytes = 2176;
inline constexpr uint32_t kMatmulSlotsMax = 4;
inline constexpr uint32_t kMatmulSlotsMin = 2;
inline constexpr uint32_t kMatmulColsMax = 1u << 15;
inline constexpr uint32_t kRowUnitRows = 4;  // rows of a row-major unit
inline constexpr uint32_t kTensorRows = 8;   // rows of x in one tensor-core product

struct DenseMatmulCut {
  uint32_t segments = 0;        // S
  uint32_t teams = 0;           // of a block of threads
  uint32_t threads = 0;         // 32 * segments * teams
  uint32_t places = 0;          // slots that one unit takes of a warp; the last may stay empty
  uint32_t slots = 0;           // of a warp
  uint32_t rows_max = 0;        // of x in one launch; more rows take several
  uint32_t band_count = 0;      // units of Q8 matrices
  uint32_t row_unit_count = 0;  // units of the others, for each group of kTensorRows rows of x
};

// S for this many columns.
uint32_t MatmulSegments(uint32_t cols);

// Bytes of shared memory of a launch of `rows` rows: rows of x when there is a Q8 matrix, the
// segments' sums, the slots.
struct MatmulSharedLayout {
  uint32_t sums_offset_bytes = 0;  // staged rows start at 0
  uint32_t slots_offset_bytes = 0;
  uint32_t bytes = 0;
};
MatmulSharedLayout LayOutMatmul(const DenseMatmulCut& cut, uint32_t rows, uint32_t cols);

// Products of long columns and few units, on cards with clusters: the segments of a unit lie in the
// blocks of a cluster, kClusterWarps to a block. The blocks of such a cluster; 0 where one block
// takes a unit: with more units than half the multiprocessors that is the better way for more than
// one row of x.
inline constexpr uint32_t kClusterWarps = 2;
uint32_t MatmulClusterBlocks(const DenseMatmulCut& cut, uint32_t rows, const GpuLimits& gpu);

// Bytes of shared memory of a block of such a launch: for each warp the weights of a unit and the
// rows of x that meet them, then the segments' sums, `unit_values` for each.
struct ClusterSharedLayout {
  uint32_t x_offset_bytes = 0;  // in a warp's part
  uint32_t warp_bytes = 0;
  uint32_t unit_values = 0;
  uint32_t sums_offset_bytes = 0;
  uint32_t bytes = 0;
};
ClusterSharedLayout LayOutClusterMatmul(const DenseMatmulCut& cut, uint32_t rows);

// InvalidArgument names what does not fit.
absl::StatusOr<DenseMatmulCut> CutDenseMatmul(const DenseMatmulArgs& args, const GpuLimits& gpu);

// The class of `rows`, for which kernels are compiled: 1, 4, 8 or 16.
uint32_t MatmulRowsClass(uint32_t rows);

// Jobs of one launch of `rows` rows: units of all teams of one block of threads. Those of row-major
// matrices come first.
uint32_t MatmulRowJobs(const DenseMatmulCut& cut, uint32_t rows);

// Blocks of threads of one launch of `rows` rows when a multiprocessor holds `resident_blocks`:
// every block gets as many jobs as the next.
uint32_t MatmulBlocks(const DenseMatmulCut& cut, uint32_t rows, uint32_t resident_blocks,
                      const GpuLimits& gpu);
// Jobs of the block that has most, of `blocks`.
uint32_t MatmulRounds(const DenseMatmulCut& cut, uint32_t rows, uint32_t blocks);

// What LaunchDenseMatmul and LaunchDenseGemm both ask of their arguments.
absl::Status CheckDenseProduct(const DenseMatmulArgs& args, uint32_t rows_max);

}  // namespace hearth
