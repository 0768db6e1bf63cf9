// pack/format/xt_code.h: levels are small, every one of 256 hashes is defined for both nibble
// roles, and the tables are those of one code each.
#include "pack/format/xt_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hearth {
namespace {

class XtCodeOfBits : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bits, XtCodeOfBits, testing::Values(2u, 3u, 4u));

TEST_P(XtCodeOfBits, LevelsFitTheKernelsByteAndAreManyAndBalanced) {
  const XtCode& code = XtCodeOf(GetParam());
  EXPECT_EQ(code.bits, GetParam());
  EXPECT_GT(code.level_deviation, 0);
  for (uint32_t phase = 0; phase < code.phase_count; ++phase) {
    std::set<int> levels;
    int64_t sum = 0;
    for (uint32_t hash = 0; hash < 256; ++hash) {
      const int level = code.Level(phase, static_cast<uint8_t>(hash));
      ASSERT_GE(level, -63);
      ASSERT_LE(level, 63);
      levels.insert(level);
      sum += level;
    }
    EXPECT_GT(levels.size(), 32u);
    EXPECT_LT(std::abs(sum), 256 * 8);
  }
}

TEST_P(XtCodeOfBits, PhasesRunThroughTheFieldsOfAByte) {
  const XtCode& code = XtCodeOf(GetParam());
  EXPECT_EQ(code.phase_count % code.fields_per_byte(), 0u);
  EXPECT_EQ(8 % code.phase_count, 0u) << "a chunk has whole turns of the phase";
  uint32_t high = 0;
  for (uint32_t phase = 0; phase < code.phase_count; ++phase) high += code.newest_is_high(phase);
  EXPECT_EQ(high * 2, code.phase_count);
}

TEST_P(XtCodeOfBits, PhasesDifferOnlyInTheRolesOfTheNibbles) {
  const XtCode& code = XtCodeOf(GetParam());
  for (uint32_t phase = 0; phase < code.phase_count; ++phase) {
    for (uint32_t hash = 0; hash < 256; ++hash) {
      const uint32_t swapped = hash >> 4 | (hash & 15) << 4;
      EXPECT_EQ(code.Level(phase, static_cast<uint8_t>(hash)),
                code.Level(
                    0, static_cast<uint8_t>(
                           code.newest_is_high(phase) == code.newest_is_high(0) ? hash : swapped)));
    }
  }
}

TEST_P(XtCodeOfBits, HashesAreLinearInTheOlderBytesAndOneToOneInTheNewest) {
  const XtCode& code = XtCodeOf(GetParam());
  for (uint32_t phase = 0; phase < code.phase_count; ++phase) {
    std::set<uint8_t> images;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const auto other = static_cast<uint8_t>(byte * 37 + 11);
      images.insert(code.Hash(phase, b, 0x5A, 0xC3));
      EXPECT_EQ(code.Hash(phase, 0, b ^ other, 0),
                code.Hash(phase, 0, b, 0) ^ code.Hash(phase, 0, other, 0));
      EXPECT_EQ(code.Hash(phase, 7, b, other),
                7 ^ XtApply(code.older[phase], b) ^ XtApply(code.oldest[phase], other));
    }
    EXPECT_EQ(images.size(), 256u);
  }
}

TEST(XtCode, MatrixColumnsAreImagesOfBits) {
  const XtMatrix matrix = {0x01, 0x03, 0x10, 0x80, 0x00, 0xFF, 0x22, 0x40};
  for (uint32_t bit = 0; bit < 8; ++bit) {
    EXPECT_EQ(XtApply(matrix, static_cast<uint8_t>(1u << bit)), matrix[bit]);
  }
  EXPECT_EQ(XtApply(matrix, 0b00100011), 0x01 ^ 0x03 ^ 0xFF);
}

}  // namespace
}  // namespace hearth
