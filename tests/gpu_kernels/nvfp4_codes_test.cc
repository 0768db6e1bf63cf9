// gpu_kernels/common/nvfp4_codes.h and nvfp4_addends.h: the tables, read as the GPU's byte
// permutation reads them.
#include "gpu_kernels/common/nvfp4_codes.h"

#include <bit>
#include <cmath>

#include "gtest/gtest.h"

#include "gpu_kernels/common/nvfp4_addends.h"
#include "pack/format/float_codes.h"

namespace hearth {
namespace {

// One byte of PTX prmt.b32 in its default mode.
uint32_t PermutedByte(uint32_t low, uint32_t high, uint32_t nibble) {
  const uint64_t both = uint64_t{high} << 32 | low;
  const auto byte = static_cast<uint32_t>(both >> (8 * (nibble & 7)) & 0xFF);
  return (nibble & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFF : 0;
}

TEST(Nvfp4Codes, TwoTablesOfEightHoldSixteenEntries) {
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t entry = PermutedByte(kNvfp4MagnitudeLow, kNvfp4MagnitudeHigh, code & 7) ^
                           PermutedByte(kNvfp4SignedLow, kNvfp4SignedHigh, code);
    EXPECT_EQ(static_cast<int32_t>(entry), kNvfp4Offset + kE2m1Doubled[code]) << code;
  }
}

TEST(Nvfp4Codes, SumsOfASubBlockLeaveTheFloatThroughASubtraction) {
  for (const int32_t sum : {0, 1, -1, 16 * 12 * 127, -16 * 12 * 127, (1 << 22) - 1, -(1 << 22)}) {
    EXPECT_EQ(std::bit_cast<float>(kIntegerFloatBits + sum) - kIntegerFloat,
              static_cast<float>(sum));
  }
}

TEST(Nvfp4Codes, HalfAScaleIsOneExactMultiplication) {
  for (uint32_t code = 0; code < 0x7F; ++code) {
    EXPECT_EQ(std::bit_cast<float>(code << 20) * kHalfE4m3Factor,
              DecodeE4m3(static_cast<uint8_t>(code)) * 0.5f)
        << code;
  }
}

TEST(Nvfp4Codes, TwoLookupsAddUpToEveryCode) {
  for (uint32_t code = 0; code < 16; ++code) {
    const auto twice = static_cast<int8_t>(PermutedByte(kNvfp4TwiceLow, kNvfp4TwiceHigh, code));
    const auto minus = static_cast<int8_t>(
        PermutedByte(kNvfp4MinusLow, kNvfp4MinusHigh, code & kNvfp4MagnitudeMask));
    EXPECT_EQ(twice + minus, kE2m1Doubled[code]) << code;
  }
}

// fp16, subnormal numbers included.
float ValueOfHalf(uint32_t bits) {
  const auto exponent = static_cast<int>(bits >> 10 & 31);
  const auto mantissa = static_cast<float>(bits & 1023);
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
}

TEST(Nvfp4Codes, HalfAScaleIsOneExactMultiplicationInFp16) {
  for (uint32_t code = 0; code < 0x7F; ++code) {
    const float half = ValueOfHalf(code << kE4m3ToHalfShift) * ValueOfHalf(kHalfE4m3FactorBits);
    EXPECT_EQ(half, DecodeE4m3(static_cast<uint8_t>(code)) * 0.5f) << code;
    // At most four bits, and not below fp16's normal numbers: the product is not rounded.
    EXPECT_TRUE(code == 0 || half >= 0x1p-14f) << code;
  }
}

}  // namespace
}  // namespace hearth
