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

absl::Status LaunchDenseGemm(const DenseMatmulArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckDenseProduct(args, kGemmRowsMax));
  absl::InlinedVector<MatmulOutput, kMatmulOutputsMax> of_kind[2];
  for (uint32_t i = 0; i < args.output_count; ++i) {
    const MatmulOutput& output = args.outputs[i];
    of_kind[output.w.format == MatrixFormat::kQ8 ? 0 : 1].push_back(output);
  }
  if (!of_kind[0].empty()) {
    HEARTH_RETURN_IF_ERROR(LaunchGemmQ8(of_kind[0], args.x, args.rows, args.cols, stream));
  }
  if (of_kind[1].empty()) return absl::OkStatus();
  return LaunchGemmRowMajor(of_kind[1], args.x, args.rows, args.cols, stream);
}

}  // namespace hearth
