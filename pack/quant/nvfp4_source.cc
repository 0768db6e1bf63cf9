#include "pack/quant/nvfp4_source.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

bool IsPositive(float value) { return std::isfinite(value) && value > 0; }

}  // namespace

absl::Status CheckBlockScales(std::span<const uint8_t> scales, uint64_t cols, uint64_t row_begin,
                              std::string_view tensor) {
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] < 0x7F) continue;
    return absl::DataLossError(absl::StrFormat(
        "%s: %s scale code 0x%02X at row %d, column %d", ToAbsl(tensor),
        IsE4m3Nan(scales[i]) ? "NaN" : "negative", scales[i], row_begin + i / cols, i % cols));
  }
  return absl::OkStatus();
}

absl::StatusOr<float> CheckMultiplier(float stored, std::string_view tensor) {
  if (IsPositive(stored)) return stored;
  return absl::DataLossError(
      absl::StrCat(ToAbsl(tensor), ": global scale is ", stored, ", expected finite and positive"));
}

absl::StatusOr<float> MultiplierOfDivisor(float divisor, std::string_view tensor) {
  const float multiplier = 1.0f / divisor;
  if (IsPositive(divisor) && IsPositive(multiplier)) return multiplier;
  return absl::DataLossError(absl::StrCat(ToAbsl(tensor), ": global scale divisor is ", divisor,
                                          ", expected it and 1 / it finite and positive"));
}

void DecodeNvfp4(std::span<const uint8_t> codes, std::span<const uint8_t> scales, float multiplier,
                 std::span<float> out) {
  HEARTH_CHECK(codes.size() == out.size() / 2);
  HEARTH_CHECK(scales.size() == out.size() / kNvfp4BlockValues);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t code = (i % 2 == 0) ? (codes[i / 2] & 15) : (codes[i / 2] >> 4);
    out[i] = DecodeE2m1(code) * DecodeE4m3(scales[i / kNvfp4BlockValues]) * multiplier;
  }
}

}  // namespace hearth
