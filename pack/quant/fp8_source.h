// FP8 (E4M3) as checkpoints store it, decoded to fp32: per tensor, per 128 x 128 block and MXFP8.
// A NaN code (0x7F, 0xFF) is damage: every function names tensor, row and column of the first.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

inline constexpr uint64_t kMxfp8BlockValues = 32;  // values of a row that share one E8M0 scale

// DataLoss for a NaN code. `codes` are whole rows of `cols`, the first of which is row `row_begin`.
absl::Status CheckFp8Codes(std::span<const uint8_t> codes, uint64_t cols, uint64_t row_begin,
                           std::string_view tensor);

// DataLoss unless every scale is finite and not negative. `cols` is the row length of the scale
// grid.
absl::Status CheckScaleGrid(std::span<const float> scales, uint64_t cols, std::string_view tensor);

// out = code * scale, rounded once. `codes` have been checked.
void DecodeFp8(std::span<const uint8_t> codes, float scale, std::span<float> out);

// One row; `row_scales` are the ceil(cols / 128) scales of its block row. out = code * scale, one
// rounding.
void DecodeFp8BlockRow(std::span<const uint8_t> codes, std::span<const float> row_scales,
                       std::span<float> out);

// Rows of cols % 32 == 0: out = code * 2^(scale - 127), which is exact. `scales` (rows, cols / 32).
// DataLoss for NaN codes and scales (0xFF) and for a value that BF16 cannot hold, which happens
// only beyond the ends of its range.
absl::Status DecodeMxfp8(std::span<const uint8_t> codes, std::span<const uint8_t> scales,
                         uint64_t cols, uint64_t row_begin, std::string_view tensor,
                         std::span<float> out);

}  // namespace hearth
