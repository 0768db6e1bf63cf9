// NVFP4 as checkpoints store it, before it is laid out for a pack.
//   codes   (rows, cols / 2) u8, row-major: the even element in the low nibble
//   scales  (rows, cols / 16) u8: E4M3 without sign, natural order
//   multiplier  fp32, one per matrix. ModelOpt stores it ("weight_scale_2"); compressed-tensors
//   stores
//               its divisor ("weight_global_scale")
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// DataLoss naming `tensor`, row and column of the first NaN (0x7F, 0xFF) or negative (0x80..) code.
// `scales` are whole rows of `cols` codes, the first of which is row `row_begin`.
absl::Status CheckBlockScales(std::span<const uint8_t> scales, uint64_t cols, uint64_t row_begin,
                              std::string_view tensor);

// A multiplier as stored. DataLoss unless finite and positive.
absl::StatusOr<float> CheckMultiplier(float stored, std::string_view tensor);
// 1 / divisor, rounded once. DataLoss unless both are finite and positive.
absl::StatusOr<float> MultiplierOfDivisor(float divisor, std::string_view tensor);

// out[i] = e2m1 * e4m3 * multiplier: the first product is exact, the second rounds once.
// codes.size() == out.size() / 2, scales.size() == out.size() / 16; any number of whole rows.
void DecodeNvfp4(std::span<const uint8_t> codes, std::span<const uint8_t> scales, float multiplier,
                 std::span<float> out);

}  // namespace hearth
