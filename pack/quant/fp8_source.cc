#include "pack/quant/fp8_source.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

absl::Status CheckFp8Codes(std::span<const uint8_t> codes, uint64_t cols, uint64_t row_begin,
                           std::string_view tensor) {
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!IsE4m3Nan(codes[i])) continue;
    return absl::DataLossError(absl::StrFormat("%s: NaN code 0x%02X at row %d, column %d",
                                               ToAbsl(tensor), codes[i], row_begin + i / cols,
                                               i % cols));
  }
  return absl::OkStatus();
}

absl::Status CheckScaleGrid(std::span<const float> scales, uint64_t cols, std::string_view tensor) {
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isfinite(scales[i]) && !std::signbit(scales[i])) continue;
    return absl::DataLossError(absl::StrCat(ToAbsl(tensor), ": scale is ", scales[i], " at row ",
                                            i / cols, ", column ", i % cols,
                                            ", expected finite and not negative"));
  }
  return absl::OkStatus();
}

void DecodeFp8(std::span<const uint8_t> codes, float scale, std::span<float> out) {
  HEARTH_CHECK(codes.size() == out.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = DecodeE4m3(codes[i]) * scale;
}

void DecodeFp8BlockRow(std::span<const uint8_t> codes, std::span<const float> row_scales,
                       std::span<float> out) {
  HEARTH_CHECK(codes.size() == out.size());
  HEARTH_CHECK(row_scales.size() * kFp8BlockValues >= out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = DecodeE4m3(codes[i]) * row_scales[i / kFp8BlockValues];
  }
}

absl::Status DecodeMxfp8(std::span<const uint8_t> codes, std::span<const uint8_t> scales,
                         uint64_t cols, uint64_t row_begin, std::string_view tensor,
                         std::span<float> out) {
  HEARTH_CHECK(codes.size() == out.size());
  HEARTH_CHECK(scales.size() == out.size() / kMxfp8BlockValues);
  HEARTH_RETURN_IF_ERROR(CheckFp8Codes(codes, cols, row_begin, tensor));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t scale = scales[i / kMxfp8BlockValues];
    out[i] = DecodeE4m3(codes[i]) * DecodeE8m0(scale);
    if (std::isfinite(out[i]) && DecodeBf16(EncodeBf16(out[i])) == out[i]) continue;
    return absl::DataLossError(absl::StrFormat(
        "%s: E8M0 scale code 0x%02X and E4M3 code 0x%02X at row %d, column %d: not a BF16 number",
        ToAbsl(tensor), scale, codes[i], row_begin + i / cols, i % cols));
  }
  return absl::OkStatus();
}

}  // namespace hearth
