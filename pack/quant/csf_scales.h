// NVIDIA's lossless packing of E4M3 block scales ("byte-window4-fixed-stream-u24-exceptions/1"),
// which replaces a weight_scale tensor of (rows, cols) bytes by two tensors:
//   fixed       U8 (rows / 16, 16 * (1 + cols / 2)): per slab of 16 rows, 16 base bytes, then the
//   rows'
//               4-bit offsets, row-major, the even column in the low nibble: scale = base[row] +
//               offset
//   exceptions  U32, ascending: low 24 bits row * cols + col, high 8 bits the scale; applied
//   afterwards
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// InvalidArgument unless rows % 16 == 0, cols is even and rows * cols <= 2^24.
absl::Status CheckCsfShape(uint64_t rows, uint64_t cols, std::string_view tensor);
constexpr uint64_t CsfFixedBytes(uint64_t rows, uint64_t cols) { return rows + rows * cols / 2; }

// Fills scales (rows, cols). The shape has passed CheckCsfShape and fixed.size() ==
// CsfFixedBytes(). DataLoss, naming `tensor` and the position, for a base above 240 and for
// exceptions that are out of range or not ascending.
absl::Status DecodeCsfScales(std::span<const uint8_t> fixed, std::span<const uint32_t> exceptions,
                             uint64_t rows, uint64_t cols, std::string_view tensor,
                             std::span<uint8_t> scales);

}  // namespace hearth
