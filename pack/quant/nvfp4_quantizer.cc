#include "pack/quant/nvfp4_quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr int kScaleCodeMax = 0x7E;  // 448
constexpr int kCodesBelow = 2;
constexpr int kCodesAbove = 5;

// The nearest of 0 .5 1 1.5 2 3 4 6, ties to the even code: EncodeE2m1 without its sign,
// branch-free.
uint32_t NearestMagnitude(float a) {
  return uint32_t{a > 0.25f} + uint32_t{a >= 0.75f} + uint32_t{a > 1.25f} + uint32_t{a >= 1.75f} +
         uint32_t{a > 2.5f} + uint32_t{a >= 3.5f} + uint32_t{a > 5.0f};
}

struct Block {
  uint8_t scale = 0;
  float error = std::numeric_limits<float>::infinity();
  uint8_t codes[kNvfp4BlockValues] = {};
};

Block TryScale(const float* x, uint8_t scale_code, float multiplier) {
  Block block{.scale = scale_code, .error = 0};
  const float scale = DecodeE4m3(scale_code) * multiplier;
  for (uint32_t k = 0; k < kNvfp4BlockValues; ++k) {
    const float magnitude = std::abs(x[k]);
    const uint32_t code = scale > 0 ? NearestMagnitude(magnitude / scale) : 0;
    const float difference = magnitude - kE2m1Values[code] * scale;
    block.error += difference * difference;
    block.codes[k] = static_cast<uint8_t>(code | (std::signbit(x[k]) && code != 0 ? 8u : 0u));
  }
  return block;
}

Block BestBlock(const float* x, float multiplier) {
  float max = 0;
  for (uint32_t k = 0; k < kNvfp4BlockValues; ++k) max = std::max(max, std::abs(x[k]));
  if (max == 0) return TryScale(x, 0, multiplier);
  const int base = EncodeE4m3(max / (6.0f * multiplier));
  Block best;
  for (int code = std::max(1, base - kCodesBelow);
       code <= std::min(kScaleCodeMax, base + kCodesAbove); ++code) {
    const Block block = TryScale(x, static_cast<uint8_t>(code), multiplier);
    if (block.error < best.error) best = block;
  }
  return best.error == std::numeric_limits<float>::infinity()
             ? TryScale(x, kScaleCodeMax, multiplier)
             : best;
}

}  // namespace

double QuantizationError::RelativeRms() const {
  return squared_values > 0 ? std::sqrt(squared_error / squared_values) : 0;
}

absl::Status QuantizeNvfp4(std::span<const float> values, uint32_t rows, uint32_t cols,
                           std::span<uint8_t> codes, std::span<uint8_t> scales, float& multiplier,
                           QuantizationError& error) {
  HEARTH_CHECK(cols % kNvfp4BlockValues == 0);
  HEARTH_CHECK(values.size() == size_t{rows} * cols);
  HEARTH_CHECK(codes.size() == values.size() / 2);
  HEARTH_CHECK(scales.size() == values.size() / kNvfp4BlockValues);
  float max = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return absl::DataLossError(absl::StrCat("row ", i / cols, ", column ", i % cols, ": value ",
                                              values[i], " is not finite"));
    }
    max = std::max(max, std::abs(values[i]));
  }
  // A normal number, so that scale * multiplier keeps its bits; below it everything is zero anyway.
  multiplier = max == 0 ? 1.0f : std::max(max / (6.0f * 448.0f), std::numeric_limits<float>::min());
  for (size_t b = 0; b < scales.size(); ++b) {
    const float* x = values.data() + b * kNvfp4BlockValues;
    const Block block = BestBlock(x, multiplier);
    scales[b] = block.scale;
    error.squared_error += block.error;
    for (uint32_t k = 0; k < kNvfp4BlockValues; ++k) {
      error.squared_values += static_cast<double>(x[k]) * x[k];
    }
    for (uint32_t k = 0; k < kNvfp4BlockValues; k += 2) {
      codes[(b * kNvfp4BlockValues + k) / 2] =
          static_cast<uint8_t>(block.codes[k] | (block.codes[k + 1] << 4));
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth
