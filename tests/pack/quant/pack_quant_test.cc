// Goal: the codecs of checkpoint formats agree with float64 arithmetic on every code, and refuse
// damage with its position. Truth: tests/support/tiny_codecs, written from the format documents
// alone.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/quant/csf_scales.h"
#include "pack/quant/fp8_source.h"
#include "pack/quant/nvfp4_source.h"
#include "tests/support/tiny_codecs.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

TEST(Nvfp4Source, EveryCodeTimesEveryScaleIsExact) {
  std::vector<uint8_t> codes(8);
  for (uint8_t i = 0; i < 8; ++i) codes[i] = static_cast<uint8_t>((2 * i) | ((2 * i + 1) << 4));
  std::vector<float> out(16);
  for (int scale = 0; scale < 0x7F; ++scale) {
    const std::vector<uint8_t> scales = {static_cast<uint8_t>(scale)};
    DecodeNvfp4(codes, scales, 1.0f, out);
    for (uint8_t code = 0; code < 16; ++code) {
      EXPECT_EQ(double{out[code]}, TinyE2m1(code) * TinyE4m3(scales[0]))
          << scale << " " << int{code};
    }
  }
}

TEST(Nvfp4Source, TheMultiplierRoundsOnce) {
  const std::vector<uint8_t> codes = {0x75, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<uint8_t> scales = {0x7D};
  std::vector<float> out(16);
  const float multiplier = 1.0f / 3584;
  DecodeNvfp4(codes, scales, multiplier, out);
  EXPECT_EQ(out[0], static_cast<float>(3.0 * TinyE4m3(0x7D) * double{multiplier}));
  EXPECT_EQ(out[1], static_cast<float>(6.0 * TinyE4m3(0x7D) * double{multiplier}));
}

TEST(Nvfp4Source, OnlyNonNegativeFiniteScaleCodesPass) {
  for (int code = 0; code < 256; ++code) {
    const std::vector<uint8_t> scales = {0x38, 0x38, 0x38, static_cast<uint8_t>(code)};
    const absl::Status status = CheckBlockScales(scales, 2, 10, "x.weight_scale");
    EXPECT_EQ(status.ok(), code < 0x7F) << code;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("x.weight_scale"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("row 11, column 1"));
  }
}

TEST(Nvfp4Source, ReciprocalDivisorGivesTheStoredMultiplier) {
  for (int divisor = 1; divisor < 5000; ++divisor) {
    const auto d = static_cast<float>(divisor);
    EXPECT_EQ(MultiplierOfDivisor(d, "x").value(), CheckMultiplier(1.0f / d, "x").value());
  }
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY, 1e-45f}) {
    EXPECT_EQ(MultiplierOfDivisor(bad, "x").status().code(), absl::StatusCode::kDataLoss) << bad;
  }
  EXPECT_TRUE(CheckMultiplier(1e-45f, "x").ok());  // small is not damage
}

TEST(CsfScales, DecodesWhatAnIndependentEncoderWrote) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng prng(seed);
    const auto rows = static_cast<uint32_t>(16 * (1 + prng.Below(4)));
    const auto cols = static_cast<uint32_t>(2 * (1 + prng.Below(80)));
    const uint64_t spread = seed % 2 == 0 ? 16 : 0x7F;  // without and with exceptions
    std::vector<uint8_t> scales(size_t{rows} * cols);
    for (uint8_t& s : scales) s = static_cast<uint8_t>(prng.Below(spread));
    const TinyCsf csf = EncodeTinyCsf(scales, rows, cols);
    EXPECT_EQ(csf.exceptions.empty(), seed % 2 == 0);
    ASSERT_EQ(CheckCsfShape(rows, cols, "x"), absl::OkStatus());
    ASSERT_EQ(csf.fixed.size(), CsfFixedBytes(rows, cols));
    std::vector<uint8_t> decoded(scales.size());
    ASSERT_EQ(DecodeCsfScales(csf.fixed, csf.exceptions, rows, cols, "x", decoded),
              absl::OkStatus());
    EXPECT_EQ(decoded, scales) << seed;
  }
}

TEST(CsfScales, ShapesOutsideTheFormatAreRefused) {
  struct Shape {
    uint64_t rows, cols;
  };
  for (const Shape s : {Shape{0, 2}, Shape{16, 0}, Shape{15, 2}, Shape{16, 3}, Shape{1u << 20, 32},
                        Shape{UINT64_MAX - 15, 2}}) {
    EXPECT_FALSE(CheckCsfShape(s.rows, s.cols, "x").ok()) << s.rows << " " << s.cols;
  }
  EXPECT_TRUE(CheckCsfShape(640, 160, "x").ok());
  EXPECT_TRUE(CheckCsfShape(2560, 40, "x").ok());
  EXPECT_TRUE(CheckCsfShape(1u << 20, 16, "x").ok());
}

TEST(Fp8Source, EveryCodeIsExactAndNanIsRefused) {
  std::vector<float> out(1);
  for (int code = 0; code < 256; ++code) {
    const std::vector<uint8_t> codes = {static_cast<uint8_t>(code)};
    const bool is_nan = (code & 0x7F) == 0x7F;
    EXPECT_EQ(CheckFp8Codes(codes, 1, 0, "x").ok(), !is_nan) << code;
    if (is_nan) continue;
    DecodeFp8(codes, 0.5f, out);
    EXPECT_EQ(double{out[0]}, TinyE4m3(codes[0]) * 0.5);
  }
  DecodeFp8(std::vector<uint8_t>{0x7E}, 1, out);
  EXPECT_EQ(out[0], 448.0f);
}

TEST(Fp8Source, Mxfp8ScalesArePowersOfTwo) {
  std::vector<uint8_t> codes(32, 0x38);  // 1
  std::vector<float> out(32);
  for (int scale = 0; scale < 256; ++scale) {
    const std::vector<uint8_t> scales = {static_cast<uint8_t>(scale)};
    const absl::Status status = DecodeMxfp8(codes, scales, 32, 0, "x.weight", out);
    EXPECT_EQ(status.ok(), scale != 0xFF) << scale;
    if (!status.ok()) continue;
    EXPECT_EQ(double{out[31]}, std::ldexp(1.0, scale - 127)) << scale;
  }
  codes[7] = 0x7E;  // 448 * 2^127 is beyond fp32
  EXPECT_EQ(DecodeMxfp8(codes, std::vector<uint8_t>{254}, 32, 3, "x.weight", out).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hearth
