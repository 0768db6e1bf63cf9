// The packer's own encoders: Q8 against its definition element by element, expert bands against the
// layout's formula and their inverses, NVFP4 quantisation against exhaustive search.
#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/format/float_codes.h"
#include "pack/format/matrix_layout.h"
#include "pack/quant/expert_bands.h"
#include "pack/quant/nvfp4_quantizer.h"
#include "pack/quant/q8_encoder.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

std::vector<float> Gaussians(uint64_t seed, size_t count) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& v : values) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    v = static_cast<float>(radius * std::cos(6.283185307179586 * prng.Uniform()));
  }
  return values;
}

TEST(Q8Encoder, FollowsTheDefinitionForOddShapes) {
  Prng prng(5);
  for (int round = 0; round < 40; ++round) {
    const auto rows = static_cast<uint32_t>(1 + prng.Below(50));
    const auto cols = static_cast<uint32_t>(32 * (1 + prng.Below(5)));
    std::vector<float> values = Gaussians(prng.Next(), size_t{rows} * cols);
    for (float& v : values) v *= std::exp2f(static_cast<float>(prng.Below(40)) - 30);
    std::vector<std::byte> bands(MatrixBytes(MatrixFormat::kQ8, rows, cols), std::byte{0xEE});
    ASSERT_TRUE(EncodeQ8Rows(values, rows, cols, bands).ok());
    for (uint32_t row = 0; row < BandCount(rows) * 16; ++row) {
      const std::byte* band = bands.data() + row / 16 * Q8BandBytes(cols);
      for (uint32_t k = 0; k < cols; ++k) {
        const uint32_t block = k / 32;
        uint16_t scale_code;
        std::memcpy(&scale_code, band + cols / 32 * 512 + (block * 16 + row % 16) * 2, 2);
        const auto code = std::to_integer<int>(
            band[((size_t{block} * 8 + k % 32 / 4) * 16 + row % 16) * 4 + k % 4]);
        if (row >= rows) {
          ASSERT_EQ(code, 128);
          ASSERT_EQ(scale_code, 0);
          continue;
        }
        float max = 0;
        for (uint32_t i = 0; i < 32; ++i) {
          max = std::fmax(max, std::fabs(values[size_t{row} * cols + block * 32 + i]));
        }
        ASSERT_EQ(scale_code, EncodeFp16(max / 127));
        const float d = DecodeFp16(scale_code);
        const float x = values[size_t{row} * cols + k];
        const float want = d == 0 ? 0 : std::fmin(127, std::fmax(-127, std::nearbyintf(x / d)));
        ASSERT_EQ(static_cast<float>(code - 128), want) << row << " " << k;
      }
    }
    std::vector<float> decoded(values.size());
    DecodeQ8Rows(bands, rows, cols, decoded);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(std::isfinite(decoded[i]));
  }
}

TEST(Q8Encoder, RoundsHalvesToEvenAndKeepsZeroBlocks) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127;
  values[1] = 2.5f;
  values[2] = 3.5f;
  values[3] = -2.5f;
  std::vector<std::byte> bands(MatrixBytes(MatrixFormat::kQ8, 1, 32));
  std::vector<float> decoded(32);
  ASSERT_TRUE(EncodeQ8Rows(values, 1, 32, bands).ok());
  DecodeQ8Rows(bands, 1, 32, decoded);
  EXPECT_EQ(decoded[0], 127);
  EXPECT_EQ(decoded[1], 2);
  EXPECT_EQ(decoded[2], 4);
  EXPECT_EQ(decoded[3], -2);
  std::fill(values.begin(), values.end(), -0.0f);
  ASSERT_TRUE(EncodeQ8Rows(values, 1, 32, bands).ok());
  DecodeQ8Rows(bands, 1, 32, decoded);
  for (const float v : decoded) EXPECT_EQ(v, 0);
}

TEST(Q8Encoder, NamesValuesThatItCannotHold) {
  std::vector<float> values(64, 1.0f);
  std::vector<std::byte> bands(MatrixBytes(MatrixFormat::kQ8, 1, 64));
  values[40] = std::nanf("");
  EXPECT_THAT(std::string(EncodeQ8Rows(values, 1, 64, bands).message()), HasSubstr("column 40"));
  values[40] = 1e9f;
  EXPECT_EQ(EncodeQ8Rows(values, 1, 64, bands).code(), absl::StatusCode::kDataLoss);
}

TEST(ExpertBands, Nvfp4PutsEveryElementWhereTheLayoutSays) {
  Prng prng(11);
  for (const uint32_t rows : {1u, 16u, 23u, 40u}) {
    for (const uint32_t cols : {16u, 48u, 80u}) {
      const auto layout = ExpertLayout::Create(ExpertFormat::kNvfp4, cols, 16);
      const BandShape shape = {
          .rows = rows, .cols = cols, .band_bytes = layout->band_bytes(Projection::kGate)};
      std::vector<uint8_t> codes(size_t{rows} * cols / 2);
      std::vector<uint8_t> scales(size_t{rows} * cols / 16);
      for (uint8_t& c : codes) c = static_cast<uint8_t>(prng.Next());
      for (uint8_t& s : scales) s = static_cast<uint8_t>(prng.Below(0x7F));
      std::vector<std::byte> bands(shape.bytes(), std::byte{0xEE});
      InterleaveNvfp4(shape, codes, scales, bands);
      for (uint32_t row = 0; row < rows; ++row) {
        const std::byte* band = bands.data() + row / 16 * shape.band_bytes;
        for (uint32_t k = 0; k < cols; ++k) {
          const size_t i = size_t{row} * cols + k;
          const int want = k % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
          const uint32_t line = k % 16 / 8;
          const auto byte =
              std::to_integer<int>(band[((size_t{k / 16} * 2 + line) * 16 + row % 16) * 4 + k % 4]);
          ASSERT_EQ(k % 8 < 4 ? byte & 15 : byte >> 4, want) << row << " " << k;
          ASSERT_EQ(std::to_integer<uint8_t>(band[cols / 16 * 128 + k / 16 * 16 + row % 16]),
                    scales[i / 16]);
        }
      }
      std::vector<uint8_t> codes_back(codes.size());
      std::vector<uint8_t> scales_back(scales.size());
      DeinterleaveNvfp4(shape, bands, codes_back, scales_back);
      ASSERT_EQ(codes_back, codes);
      ASSERT_EQ(scales_back, scales);
      uint64_t nonzero_padding = 0;  // rows past the last
      for (uint32_t row = rows; row < BandCount(rows) * 16; ++row) {
        const std::byte* band = bands.data() + row / 16 * shape.band_bytes;
        for (uint32_t k = 0; k < cols / 8; ++k) {
          nonzero_padding += band[size_t{k} / 2 * 128 + k % 2 * 64 + row % 16 * 4] != std::byte{0};
        }
      }
      ASSERT_EQ(nonzero_padding, 0u);
    }
  }
}

TEST(ExpertBands, Bf16CountsWhatItRounds) {
  const BandShape shape = {.rows = 3, .cols = 5, .band_bytes = 192};
  std::vector<float> values(15, 0.5f);
  values[4] = 1.0f + 0x1p-20f;
  values[9] = -0.0f;
  std::vector<std::byte> bands(shape.bytes());
  EXPECT_EQ(InterleaveBf16(shape, values, bands), 1u);
  std::vector<float> back(15);
  DeinterleaveBf16(shape, bands, back);
  EXPECT_EQ(back[4], 1.0f);
  EXPECT_TRUE(std::signbit(back[9]));
}

double ErrorWithScale(const float* x, float scale) {
  double error = 0;
  for (int k = 0; k < 16; ++k) {
    const double d = double{x[k]} - double{DecodeE2m1(EncodeE2m1(x[k] / scale))} * scale;
    error += d * d;
  }
  return error;
}

TEST(Nvfp4Quantizer, IsWithinAPercentOfTheBestOfAllScales) {
  const uint32_t rows = 64;
  const uint32_t cols = 256;
  const std::vector<float> values = Gaussians(1, size_t{rows} * cols);
  std::vector<uint8_t> codes(values.size() / 2);
  std::vector<uint8_t> scales(values.size() / 16);
  float multiplier = 0;
  QuantizationError error;
  ASSERT_TRUE(QuantizeNvfp4(values, rows, cols, codes, scales, multiplier, error).ok());
  double best_error = 0;
  double decoded_error = 0;
  for (size_t b = 0; b < scales.size(); ++b) {
    double best = 1e30;
    for (int code = 1; code < 0x7F; ++code) {
      const float scale = DecodeE4m3(static_cast<uint8_t>(code)) * multiplier;
      best = std::min(best, ErrorWithScale(&values[b * 16], scale));
    }
    best_error += best;
    for (size_t k = 0; k < 16; ++k) {
      const size_t i = b * 16 + k;
      const int code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
      const double w =
          double{DecodeE2m1(static_cast<uint8_t>(code))} * (DecodeE4m3(scales[b]) * multiplier);
      decoded_error += (values[i] - w) * (values[i] - w);
    }
  }
  EXPECT_NEAR(error.squared_error, decoded_error, decoded_error * 1e-5) << "as reported";
  EXPECT_LT(decoded_error, best_error * 1.01);
  EXPECT_LT(decoded_error / static_cast<double>(values.size()), 0.0070)
      << "0.00659 with full search";
}

TEST(Nvfp4Quantizer, HandlesZerosTinyAndBrokenValues) {
  std::vector<uint8_t> codes(16);
  std::vector<uint8_t> scales(2);
  float multiplier = 0;
  QuantizationError error;
  std::vector<float> values(32, 0.0f);
  ASSERT_TRUE(QuantizeNvfp4(values, 2, 16, codes, scales, multiplier, error).ok());
  EXPECT_EQ(scales, std::vector<uint8_t>(2, 0));
  EXPECT_EQ(multiplier, 1.0f);
  values[3] = 1e-44f;
  ASSERT_TRUE(QuantizeNvfp4(values, 2, 16, codes, scales, multiplier, error).ok());
  EXPECT_TRUE(std::isfinite(multiplier) && multiplier > 0);
  values[17] = 1e30f;
  ASSERT_TRUE(QuantizeNvfp4(values, 2, 16, codes, scales, multiplier, error).ok());
  values[17] = std::nanf("");
  EXPECT_THAT(std::string(QuantizeNvfp4(values, 2, 16, codes, scales, multiplier, error).message()),
              HasSubstr("row 1, column 1"));
}

}  // namespace
}  // namespace hearth
