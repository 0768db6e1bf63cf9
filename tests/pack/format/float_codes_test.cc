// The narrow number formats against their definition: every code, every midpoint, every neighbour
// of one.
#include "pack/format/float_codes.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A binary format by its definition: (-1)^s * 2^(e - bias) * 1.m, or 2^(1 - bias) * 0.m for e == 0.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  double Value(uint32_t code) const {
    const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
    const uint32_t exponent = (code >> mantissa_bits) & ((1u << exponent_bits) - 1);
    const double significand = std::ldexp(mantissa, -mantissa_bits) + (exponent == 0 ? 0 : 1);
    const double magnitude =
        std::ldexp(significand, static_cast<int>(exponent == 0 ? 1 : exponent) - bias);
    return (code >> (mantissa_bits + exponent_bits)) != 0 ? -magnitude : magnitude;
  }
};
constexpr Format kE2m1 = {2, 1, 1};
constexpr Format kE4m3 = {4, 3, 7};
constexpr Format kFp16 = {5, 10, 15};
constexpr Format kBf16 = {8, 7, 127};

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Between each two neighbours of [0, code_max]: the midpoint goes to the even code, the floats next
// to it to the nearer one; and the same below zero.
template <class Encode>
void ExpectRoundsToNearestEven(const Format& format, uint32_t code_max, Encode encode) {
  const uint32_t sign = 1u << (format.exponent_bits + format.mantissa_bits);
  for (uint32_t low = 0; low < code_max; ++low) {
    const double exact = (format.Value(low) + format.Value(low + 1)) / 2;
    const auto middle = static_cast<float>(exact);
    ASSERT_EQ(double{middle}, exact) << "midpoint is no float, code " << low;
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(encode(middle), even) << low;
    ASSERT_EQ(encode(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(encode(std::nextafter(middle, kInfinity)), low + 1) << low;
    ASSERT_EQ(encode(-middle), sign | even) << low;
    ASSERT_EQ(encode(-std::nextafter(middle, 0.0f)), sign | low) << low;
    ASSERT_EQ(encode(-std::nextafter(middle, kInfinity)), sign | (low + 1)) << low;
  }
}

TEST(E2m1, EveryCodeHasItsValueAndComesBack) {
  for (uint32_t code = 0; code < 16; ++code) {
    const float value = DecodeE2m1(static_cast<uint8_t>(code));
    EXPECT_TRUE(SameBits(value, static_cast<float>(kE2m1.Value(code)))) << code;
    EXPECT_EQ(kE2m1Doubled[code], static_cast<int>(2 * value));
    EXPECT_EQ(EncodeE2m1(value), code);
    EXPECT_TRUE(SameBits(DecodeE2m1(static_cast<uint8_t>(code | 0xF0)), value));  // low nibble only
  }
}

TEST(E2m1, RoundsToNearestEvenAndSaturates) {
  ExpectRoundsToNearestEven(kE2m1, 7, EncodeE2m1);
  for (const float large : {6.0f, 6.5f, 7.0f, 8.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(EncodeE2m1(large), 7);
    EXPECT_EQ(EncodeE2m1(-large), 15);
  }
}

TEST(E4m3, EveryCodeHasItsValue) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = DecodeE4m3(static_cast<uint8_t>(code));
    const bool nan = (code & 0x7F) == 0x7F;
    EXPECT_EQ(IsE4m3Nan(static_cast<uint8_t>(code)), nan) << code;
    if (nan) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_TRUE(SameBits(value, static_cast<float>(kE4m3.Value(code)))) << code;
      EXPECT_EQ(EncodeE4m3(value), code);
    }
  }
  EXPECT_EQ(DecodeE4m3(0x7E), 448.0f);
  EXPECT_EQ(DecodeE4m3(0x01), 0x1p-9f);
  EXPECT_EQ(DecodeE4m3(0x08), 0x1p-6f);
}

TEST(E4m3, RoundsToNearestEvenAndSaturates) {
  ExpectRoundsToNearestEven(kE4m3, 0x7E, EncodeE4m3);
  for (const float large : {448.0f, 448.1f, 463.9f, 464.0f, 465.0f, 480.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(EncodeE4m3(large), 0x7E) << large;
    EXPECT_EQ(EncodeE4m3(-large), 0xFE) << large;
  }
  EXPECT_EQ(EncodeE4m3(std::nanf("")), 0x7F);
  EXPECT_EQ(EncodeE4m3(-std::nanf("")), 0x7F);
  EXPECT_EQ(EncodeE4m3(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(E4m3, NoOtherCodeIsNearer) {
  Prng prng(1);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(prng.Next()));
    if (!(std::fabs(x) <= 448)) continue;
    const double error = std::fabs(DecodeE4m3(EncodeE4m3(x)) - double{x});
    for (uint32_t code = 0; code < 256; ++code) {
      if (IsE4m3Nan(static_cast<uint8_t>(code))) continue;
      ASSERT_LE(error, std::fabs(kE4m3.Value(code) - double{x})) << x;
    }
  }
}

TEST(E8m0, EveryCodeIsAPowerOfTwo) {
  for (uint32_t code = 0; code < 255; ++code) {
    EXPECT_EQ(double{DecodeE8m0(static_cast<uint8_t>(code))},
              std::ldexp(1.0, static_cast<int>(code) - 127));
  }
  EXPECT_TRUE(std::isnan(DecodeE8m0(0xFF)));
}

// All 65,536 codes of a 16-bit format: value by definition, infinity, NaN, and back to the same
// code.
template <class Decode, class Encode>
void ExpectEveryCodeRoundTrips(const Format& format, Decode decode, Encode encode) {
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = decode(static_cast<uint16_t>(code));
    const uint32_t magnitude = code & 0x7FFF;
    const uint16_t back = encode(value);
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_GT(back & 0x7FFFu, infinity) << code;  // still NaN
      ASSERT_EQ(back & 0x8000u, code & 0x8000u) << code;
      continue;
    }
    const auto want = static_cast<float>(format.Value(code));
    ASSERT_TRUE(SameBits(value, magnitude == infinity ? std::copysign(kInfinity, want) : want))
        << code;
    ASSERT_EQ(back, code);
  }
}

TEST(Bf16, EveryCodeRoundTrips) { ExpectEveryCodeRoundTrips(kBf16, DecodeBf16, EncodeBf16); }

TEST(Fp16, EveryCodeRoundTrips) { ExpectEveryCodeRoundTrips(kFp16, DecodeFp16, EncodeFp16); }

TEST(Bf16, RoundsToNearestEven) {
  ExpectRoundsToNearestEven(kBf16, 0x7F7F, EncodeBf16);
  EXPECT_EQ(EncodeBf16(std::numeric_limits<float>::max()), 0x7F80);  // past the last midpoint
  EXPECT_EQ(EncodeBf16(std::bit_cast<float>(0x7F7F7FFFu)), 0x7F7F);  // before it
  EXPECT_EQ(EncodeBf16(std::bit_cast<float>(0x7F7F8000u)), 0x7F80);  // a tie goes to the even code
  // A NaN whose payload lies in the bits that are cut stays a NaN.
  EXPECT_TRUE(std::isnan(DecodeBf16(EncodeBf16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(DecodeBf16(EncodeBf16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

TEST(Fp16, RoundsToNearestEvenAndOverflowsToInfinity) {
  ExpectRoundsToNearestEven(kFp16, 0x7BFF, EncodeFp16);
  EXPECT_EQ(EncodeFp16(65504.0f), 0x7BFF);
  EXPECT_EQ(EncodeFp16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(EncodeFp16(65520.0f), 0x7C00);
  EXPECT_EQ(EncodeFp16(-65520.0f), 0xFC00);
  EXPECT_EQ(EncodeFp16(1e30f), 0x7C00);
  EXPECT_EQ(EncodeFp16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(EncodeFp16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

static_assert(DecodeE4m3(0x38) == 1.0f);
static_assert(DecodeBf16(0x3F80) == 1.0f);
static_assert(EncodeBf16(1.0f) == 0x3F80);

}  // namespace
}  // namespace hearth
