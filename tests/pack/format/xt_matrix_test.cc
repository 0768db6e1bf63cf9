// Layout and meaning of XT matrices: pack/format/xt_layout.h, pack/format/xt_matrix.h.
#include "pack/format/xt_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "pack/format/xt_code.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

std::vector<std::byte> RandomBytes(uint64_t count, uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.Below(256));
  return bytes;
}

TEST(XtShape, GroupsAreEvenAndAtMostFortyBands) {
  for (const uint32_t rows : {1u, 16u, 17u, 640u, 641u, 656u, 1280u, 1281u, 2560u, 100000u}) {
    const XtShape shape = {rows, 32, 3};
    EXPECT_EQ(shape.group_begin(0), 0u);
    EXPECT_EQ(shape.group_begin(shape.group_count()), shape.band_count());
    EXPECT_EQ(shape.group_count(), (shape.band_count() + 39) / 40);
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t g = 0; g < shape.group_count(); ++g) {
      const uint32_t bands = shape.group_begin(g + 1) - shape.group_begin(g);
      least = std::min(least, bands);
      most = std::max(most, bands);
      for (uint32_t b = shape.group_begin(g); b < shape.group_begin(g + 1); ++b) {
        ASSERT_EQ(shape.group_of(b), g) << rows << " " << b;
      }
    }
    EXPECT_LE(most, kXtGroupBandsMax);
    EXPECT_LE(most - least, 1u);
  }
}

TEST(XtShape, ChunksPartitionTheCodes) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    for (const uint32_t rows : {5u, 640u, 656u, 1300u}) {
      const XtShape shape = {rows, 96, bits};
      std::set<uint64_t> offsets;
      for (uint32_t block = 0; block < shape.block_count(); ++block) {
        for (uint32_t band = 0; band < shape.band_count(); ++band) {
          const uint64_t offset = shape.chunk_offset_bytes(block, band);
          EXPECT_EQ(offset % (64 * bits), 0u);
          EXPECT_LT(offset, shape.code_bytes());
          offsets.insert(offset);
        }
      }
      EXPECT_EQ(offsets.size() * 64 * bits, shape.code_bytes());
      EXPECT_EQ(shape.code_bytes(), uint64_t{shape.band_count()} * 16 * 96 * bits / 8);
      EXPECT_EQ(shape.scale_offset_bytes() % 64, 0u);
    }
  }
}

TEST(XtShape, AGroupsBlockIsOneRunOfBands) {
  const XtShape shape = {1300, 96, 3};
  for (uint32_t g = 0; g < shape.group_count(); ++g) {
    const uint32_t begin = shape.group_begin(g);
    const uint32_t bands = shape.group_begin(g + 1) - begin;
    for (uint32_t block = 0; block < 3; ++block) {
      for (uint32_t i = 0; i < bands; ++i) {
        EXPECT_EQ(shape.chunk_offset_bytes(block, begin + i),
                  shape.chunk_offset_bytes(0, begin) + (block * bands + i) * 192);
      }
    }
  }
}

// All levels of the stream of one lane, in order.
std::vector<int> StreamLevels(const XtShape& shape, const std::vector<std::byte>& codes,
                              uint32_t block, uint32_t group, uint32_t lane) {
  std::vector<int> levels;
  for (uint32_t band = shape.group_begin(group); band < shape.group_begin(group + 1); ++band) {
    XtLevels chunk;
    DecodeXtChunk(shape, codes.data(), block, band, &chunk);
    for (const auto& step : chunk) levels.push_back(step[lane]);
  }
  return levels;
}

// Puts symbol t of a stream into the codes, from the description of the bytes.
void SetSymbol(const XtShape& shape, std::vector<std::byte>& codes, uint32_t block, uint32_t group,
               uint32_t lane, uint32_t t, uint32_t symbol) {
  const uint32_t i = t % 8;
  std::byte* chunk =
      codes.data() + shape.chunk_offset_bytes(block, shape.group_begin(group) + t / 8);
  const auto set = [&](uint32_t line, uint32_t shift, uint32_t width, uint32_t value) {
    std::byte& at = chunk[line * 64 + lane];
    const uint32_t mask = ((1u << width) - 1) << shift;
    at = static_cast<std::byte>((std::to_integer<uint32_t>(at) & ~mask) | value << shift);
  };
  if (shape.bits == 4) return set(i / 2, i % 2 * 4, 4, symbol);
  set(i / 4, i % 4 * 2, 2, symbol & 3);
  if (shape.bits == 3) set(2, i, 1, symbol >> 2);
}

// How many symbols before it a level may depend on: the 24 newest bits of the fields, the 16
// newest high bits.
uint32_t Reach(uint32_t bits, bool uses_oldest) {
  if (bits == 3) return 16;
  return (uses_oldest ? 24 : 16) / bits;
}

class XtStream : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bits, XtStream, testing::Values(2u, 3u, 4u));

TEST_P(XtStream, LevelsDependOnTheNewestSymbolsInACircle) {
  const uint32_t bits = GetParam();
  const XtCode& code = XtCodeOf(bits);
  for (const uint32_t rows : {48u, 656u}) {  // 3 bands; 41 bands in two groups
    const XtShape shape = {rows, 64, bits};
    Prng prng(bits * 1000 + rows);
    std::vector<std::byte> codes = RandomBytes(shape.bytes(), bits);
    const uint32_t group = shape.group_count() - 1;
    const uint32_t count = 8 * (shape.band_count() - shape.group_begin(group));
    const auto before = StreamLevels(shape, codes, 1, group, 37);
    ASSERT_EQ(before.size(), count);
    std::set<uint32_t> distances;
    for (int change = 0; change < 60; ++change) {
      const auto t = static_cast<uint32_t>(change == 0 ? count - 1 : prng.Below(count));
      std::vector<std::byte> changed = codes;
      SetSymbol(shape, changed, 1, group, 37, t, static_cast<uint32_t>(prng.Below(1u << bits)));
      const auto after = StreamLevels(shape, changed, 1, group, 37);
      for (uint32_t u = 0; u < count; ++u) {
        if (before[u] != after[u]) distances.insert((u + count - t) % count);
      }
      EXPECT_EQ(StreamLevels(shape, changed, 0, group, 37),
                StreamLevels(shape, codes, 0, group, 37));
      EXPECT_EQ(StreamLevels(shape, changed, 1, group, 36),
                StreamLevels(shape, codes, 1, group, 36));
    }
    ASSERT_FALSE(distances.empty());
    EXPECT_EQ(*distances.begin(), 0u);
    EXPECT_LT(*distances.rbegin(), Reach(bits, code.uses_oldest()));
    EXPECT_GE(*distances.rbegin(), 12 / bits) << "the window is in use";
  }
}

TEST_P(XtStream, SymbolsDecodeByTheWindowOfTheDescription) {
  const uint32_t bits = GetParam();
  const XtCode& code = XtCodeOf(bits);
  const XtShape shape = {32, 32, bits};
  Prng prng(bits);
  std::vector<std::byte> codes(shape.bytes());
  std::vector<uint32_t> c(16);
  for (uint32_t t = 0; t < 16; ++t) {
    c[t] = static_cast<uint32_t>(prng.Below(1u << bits));
    SetSymbol(shape, codes, 0, 0, 9, t, c[t]);
  }
  const auto levels = StreamLevels(shape, codes, 0, 0, 9);
  const uint32_t width = bits == 3 ? 2 : bits;
  for (int t = 0; t < 16; ++t) {
    // The 24 newest bits of the fields, each at its own place of a byte: byte 0 the newest 8.
    uint32_t bytes[3] = {};
    for (int back = 0; back < static_cast<int>(24 / width); ++back) {
      const auto u = static_cast<uint32_t>((t - back + 32) % 16);
      const uint32_t field = c[u] & ((1u << width) - 1);
      bytes[back / static_cast<int>(8 / width)] |= field << (u % (8 / width) * width);
    }
    uint32_t high = 0;
    for (int back = 0; back < 8; ++back) {
      const auto u = static_cast<uint32_t>((t - back + 32) % 16);
      high |= (c[u] >> 2) << u % 8;
    }
    const uint32_t phase = static_cast<uint32_t>(t) % code.phase_count;
    const auto hash =
        bits == 3 ? code.Hash(phase, static_cast<uint8_t>(bytes[0]), static_cast<uint8_t>(high),
                              static_cast<uint8_t>(bytes[1]))
                  : code.Hash(phase, static_cast<uint8_t>(bytes[0]), static_cast<uint8_t>(bytes[1]),
                              static_cast<uint8_t>(bytes[2]));
    EXPECT_EQ(levels[static_cast<size_t>(t)], code.Level(phase, hash)) << t;
  }
}

TEST(XtRotation, BlockIsThePowerOfTwoInTheColumns) {
  EXPECT_EQ(RotationBlock(2560), 128u);
  EXPECT_EQ(RotationBlock(640), 128u);
  EXPECT_EQ(RotationBlock(64), 64u);
  EXPECT_EQ(RotationBlock(96), 32u);
  EXPECT_EQ(RotationBlock(160), 32u);
}

TEST(XtRotation, SignsAreAFixedEvenSequence) {
  int sum = 0;
  for (uint32_t i = 0; i < 2560; ++i) {
    EXPECT_EQ(std::abs(RotationSign(i)), 1.0f);
    EXPECT_EQ(RotationSign(i) < 0, (RotationSignBits(i / 32 * 32) >> i % 32 & 1) != 0);
    sum += static_cast<int>(RotationSign(i));
  }
  EXPECT_LT(std::abs(sum), 250);
  EXPECT_EQ(RotationSignBits(0), 0xE220A839u) << "part of the format";
}

TEST(XtRotation, IsTheSignedHadamardTransform) {
  Prng prng(4);
  for (const uint32_t cols : {32u, 64u, 96u, 640u}) {
    const uint32_t block = RotationBlock(cols);
    std::vector<float> x(cols);
    for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
    std::vector<float> rotated = x;
    RotateXt(rotated);
    for (uint32_t i = 0; i < cols; ++i) {
      double sum = 0;
      for (uint32_t j = 0; j < block; ++j) {
        const uint32_t from = i / block * block + j;
        const double sign = __builtin_popcount(i % block & j) % 2 == 0 ? 1 : -1;
        sum += sign * RotationSign(from) * x[from];
      }
      EXPECT_NEAR(rotated[i], sum / std::sqrt(static_cast<double>(block)), 2e-6);
    }
  }
}

TEST(XtRotation, KeepsDotsAndComesBack) {
  Prng prng(5);
  const uint32_t cols = 384;
  std::vector<float> x(cols), w(cols);
  for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
  for (float& v : w) v = static_cast<float>(prng.Uniform() * 2 - 1);
  std::vector<float> rx = x, rw = w;
  RotateXt(rx);
  RotateXt(rw);
  double dot = 0, rotated_dot = 0;
  for (uint32_t i = 0; i < cols; ++i) {
    dot += double{x[i]} * w[i];
    rotated_dot += double{rx[i]} * rw[i];
  }
  EXPECT_NEAR(dot, rotated_dot, 1e-5);
  UnrotateXt(rx);
  for (uint32_t i = 0; i < cols; ++i) EXPECT_NEAR(rx[i], x[i], 1e-6);
}

}  // namespace
}  // namespace hearth
