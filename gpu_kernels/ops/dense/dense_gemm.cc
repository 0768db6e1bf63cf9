#include "gpu_kernels/ops/dense/dense_gemm.h"

#include "absl/container/inlined_vector.h"

#include "gpu_kernels/ops/dense/dense_plan.h"
#include "gpu_kernels/ops/dense/gemm_half.h"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status LaunchQ8(std::span<const MatmulOutput> outputs, const DenseMatmulArgs& args,
                      const GemmRoom& room, CudaStreamView stream) {
#ifdef HEARTH_DENSE_WARPGROUPS
  if (args.rows >= kHalfGemmRowsMin && room.bytes >= GemmRoomBytes(args.rows, args.cols)) {
    HEARTH_ASSIGN_OR_RETURN(const bool has_warpgroups, HasWarpgroups(stream.gpu()));
    if (has_warpgroups) {
      return LaunchGemmHalf(outputs, args.x, args.rows, args.cols, room.data, stream);
    }
  }
#endif
  (void)room;
  return LaunchGemmQ8(outputs, args.x, args.rows, args.cols, stream);
}

}  // namespace

HalfRowsLayout LayOutHalfRows(uint32_t rows, uint32_t cols) {
  const uint64_t tiles = (uint64_t{rows} + kHalfTileRows - 1) / kHalfTileRows;
  const uint64_t steps = (uint64_t{cols} + kHalfStepCols - 1) / kHalfStepCols;
  const uint64_t line_bytes = tiles * kHalfTileRows * steps * kHalfLineBytes;
  return {.factors_offset_bytes = line_bytes, .bytes = line_bytes + uint64_t{rows} * sizeof(float)};
}

uint64_t GemmRoomBytes(uint32_t rows, uint32_t cols) { return LayOutHalfRows(rows, cols).bytes; }

GemmTileMap MapTiles(std::span<const MatmulOutput> outputs, uint32_t rows, GemmTile tile) {
  GemmTileMap map;
  for (size_t i = 0; i < outputs.size(); ++i) {
    map.first_tile[i] = map.weight_tiles;
    map.weight_tiles += (outputs[i].w.rows + tile.outputs - 1) / tile.outputs;
  }
  map.row_tiles = (rows + tile.rows - 1) / tile.rows;
  return map;
}

GemmTile ChooseQ8Tile(std::span<const MatmulOutput> outputs, uint32_t rows,
                      uint32_t multiprocessor_count) {
  const GemmTileMap map = MapTiles(outputs, rows, kQ8LargeTile);
  const bool enough = uint64_t{map.weight_tiles} * map.row_tiles >= 2 * multiprocessor_count;
  return enough ? kQ8LargeTile : kQ8SmallTile;
}

absl::Status LaunchDenseGemm(const DenseMatmulArgs& args, const GemmRoom& room,
                             CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckDenseProduct(args, kGemmRowsMax));
  absl::InlinedVector<MatmulOutput, kMatmulOutputsMax> q8, narrow, row_major;
  for (uint32_t i = 0; i < args.output_count; ++i) {
    const MatmulOutput& output = args.outputs[i];
    const bool is_narrow = output.w.rows <= kNarrowRowsMax;
    (output.w.format == MatrixFormat::kQ8 ? q8 : is_narrow ? narrow : row_major).push_back(output);
  }
  if (!q8.empty()) {
    HEARTH_RETURN_IF_ERROR(LaunchQ8(q8, args, room, stream));
  }
  if (!narrow.empty()) {
    HEARTH_RETURN_IF_ERROR(LaunchGemmNarrow(narrow, args.x, args.rows, args.cols, stream));
  }
  if (row_major.empty()) return absl::OkStatus();
  return LaunchGemmRowMajor(row_major, args.x, args.rows, args.cols, stream);
}

}  // namespace hearth
