#include "pack/quant/q8_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint32_t kSteps = kQ8BlockValues / 4;
constexpr uint64_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
constexpr std::byte kZeroCode{128};

// Adding and taking away 1.5 * 2^23 leaves a float below 2^22 rounded to an integer, half to even.
float RoundHalfEven(float v) {
  constexpr float kShift = 12582912.0f;
  return (v + kShift) - kShift;
}

struct BandView {
  std::byte* codes;
  std::byte* scales;
};

BandView Band(std::span<std::byte> bands, uint32_t band, uint32_t cols) {
  std::byte* start = bands.data() + band * Q8BandBytes(cols);
  return {start, start + uint64_t{cols / kQ8BlockValues} * kBlockCodeBytes};
}

// One block of one row; false when the block has no finite scale.
bool EncodeBlock(const float* x, std::byte* codes, std::byte* scale) {
  float max = 0;
  bool finite = true;
  for (uint32_t k = 0; k < kQ8BlockValues; ++k) {
    finite = finite && std::isfinite(x[k]);
    max = std::max(max, std::abs(x[k]));
  }
  const uint16_t scale_code = EncodeFp16(max / 127.0f);
  const float d = DecodeFp16(scale_code);
  if (!finite || !std::isfinite(d)) return false;
  std::memcpy(scale, &scale_code, sizeof(scale_code));
  for (uint32_t k = 0; k < kQ8BlockValues; ++k) {
    // A scale that rounded down far (fp16 subnormals) can put the quotient beyond 127.
    const float ratio = d == 0 ? 0.0f : std::clamp(x[k] / d, -127.0f, 127.0f);
    const auto q = static_cast<int>(RoundHalfEven(ratio));
    codes[k / 4 * kBandRows * 4 + k % 4] = static_cast<std::byte>(q + 128);
  }
  return true;
}

absl::Status BlockError(const float* x, uint32_t row, uint32_t block) {
  for (uint32_t k = 0; k < kQ8BlockValues; ++k) {
    if (std::isfinite(x[k])) continue;
    return absl::DataLossError(absl::StrCat("row ", row, ", column ", block * kQ8BlockValues + k,
                                            ": value ", x[k], " is not finite"));
  }
  return absl::DataLossError(absl::StrCat("row ", row, ", columns from ", block * kQ8BlockValues,
                                          ": values too large for an fp16 scale"));
}

}  // namespace

absl::Status EncodeQ8Rows(std::span<const float> values, uint32_t row_count, uint32_t cols,
                          std::span<std::byte> out) {
  HEARTH_CHECK(cols % kQ8BlockValues == 0);
  HEARTH_CHECK(values.size() == size_t{row_count} * cols);
  HEARTH_CHECK(out.size() == MatrixBytes(MatrixFormat::kQ8, row_count, cols));
  const uint32_t blocks = cols / kQ8BlockValues;
  for (uint32_t band = 0; band < BandCount(row_count); ++band) {
    const BandView to = Band(out, band, cols);
    std::fill(to.codes, to.scales, kZeroCode);
    std::fill(to.scales, to.codes + Q8BandBytes(cols), std::byte{0});
    const uint32_t rows = std::min(kBandRows, row_count - band * kBandRows);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint32_t row = band * kBandRows + r;
      for (uint32_t block = 0; block < blocks; ++block) {
        const float* x = values.data() + size_t{row} * cols + block * kQ8BlockValues;
        if (!EncodeBlock(x, to.codes + block * kBlockCodeBytes + r * 4,
                         to.scales + (size_t{block} * kBandRows + r) * 2)) {
          return BlockError(x, row, block);
        }
      }
    }
  }
  return absl::OkStatus();
}

void DecodeQ8Rows(std::span<const std::byte> bands, uint32_t row_count, uint32_t cols,
                  std::span<float> values) {
  HEARTH_CHECK(values.size() == size_t{row_count} * cols);
  HEARTH_CHECK(bands.size() == MatrixBytes(MatrixFormat::kQ8, row_count, cols));
  const uint32_t blocks = cols / kQ8BlockValues;
  for (uint32_t row = 0; row < row_count; ++row) {
    const std::byte* codes = bands.data() + row / kBandRows * Q8BandBytes(cols);
    const std::byte* scales = codes + blocks * kBlockCodeBytes;
    const uint32_t r = row % kBandRows;
    for (uint32_t k = 0; k < cols; ++k) {
      const uint32_t block = k / kQ8BlockValues;
      const uint32_t step = k % kQ8BlockValues / 4;
      uint16_t scale;
      std::memcpy(&scale, scales + (size_t{block} * kBandRows + r) * 2, sizeof(scale));
      const auto code = std::to_integer<int>(
          codes[(size_t{block} * kSteps + step) * kBandRows * 4 + r * 4 + k % 4]);
      values[size_t{row} * cols + k] = static_cast<float>(code - 128) * DecodeFp16(scale);
    }
  }
}

}  // namespace hearth
