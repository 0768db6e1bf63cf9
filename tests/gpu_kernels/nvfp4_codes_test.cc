// gpu_kernels/common/nvfp4_codes.h: the tables, read as the GPU's byte permutation reads them.
#include "gpu_kernels/common/nvfp4_codes.h"

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace hearth
