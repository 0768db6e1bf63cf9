// How prompt products are cut into tiles, and the kernels behind LaunchDenseGemm. Tiles of one
// matrix lie next to each other; all row tiles of a weight tile are neighbours in the grid, so that
// its weights come from memory once.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"

namespace hearth {

struct GemmTile {
  uint32_t outputs = 0;  // rows of w
  uint32_t rows = 0;     // of x
  bool operator==(const GemmTile&) const = default;
};

inline constexpr GemmTile kQ8LargeTile = {128, 128};
inline constexpr GemmTile kQ8SmallTile = {64, 64};
inline constexpr GemmTile kRowMajorTile = {64, 64};

// Which output a tile of weights belongs to: tiles of output i start at first_tile[i].
struct GemmTileMap {
  uint32_t first_tile[kMatmulOutputsMax] = {};
  uint32_t weight_tiles = 0;
  uint32_t row_tiles = 0;
};
GemmTileMap MapTiles(std::span<const MatmulOutput> outputs, uint32_t rows, GemmTile tile);

// The large tile where there are two of them for each multiprocessor.
GemmTile ChooseQ8Tile(std::span<const MatmulOutput> outputs, uint32_t rows,
                      uint32_t multiprocessor_count);

// `outputs` are all of the kind that the function is for; at least one. Checked by the caller.
absl::Status LaunchGemmQ8(std::span<const MatmulOutput> outputs, const DeviceRows& x, uint32_t rows,
                          uint32_t cols, CudaStreamView stream);
// Row-major matrices of so few rows that reading x is all their work.
inline constexpr uint32_t kNarrowRowsMax = 4;
absl::Status LaunchGemmNarrow(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                              uint32_t rows, uint32_t cols, CudaStreamView stream);
absl::Status LaunchGemmRowMajor(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                                uint32_t rows, uint32_t cols, CudaStreamView stream);

}  // namespace hearth
