#include "gpu_kernels/ops/dense/dense_gemm.h"

#include "absl/container/inlined_vector.h"

#include "gpu_kernels/ops/dense/dense_plan.h"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "runtime/base/status.h"

namespace hearth {

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

absl::Status LaunchDenseGemm(const DenseMatmulArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckDenseProduct(args, kGemmRowsMax));
  absl::InlinedVector<MatmulOutput, kMatmulOutputsMax> q8;
  absl::InlinedVector<MatmulOutput, kMatmulOutputsMax> row_major;
  for (uint32_t i = 0; i < args.output_count; ++i) {
    const MatmulOutput& output = args.outputs[i];
    (output.w.format == MatrixFormat::kQ8 ? q8 : row_major).push_back(output);
  }
  if (!q8.empty()) {
    HEARTH_RETURN_IF_ERROR(LaunchGemmQ8(q8, args.x, args.rows, args.cols, stream));
  }
  if (row_major.empty()) return absl::OkStatus();
  return LaunchGemmRowMajor(row_major, args.x, args.rows, args.cols, stream);
}

}  // namespace hearth
