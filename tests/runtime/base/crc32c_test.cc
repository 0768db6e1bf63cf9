// CRC-32C against published vectors and a bit-by-bit definition.
#include "runtime/base/crc32c.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

uint32_t CrcOf(std::string_view text) { return Crc32c(std::as_bytes(std::span(text))); }

std::vector<std::byte> Bytes(size_t count, uint8_t first, int step) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(first + static_cast<int>(i) * step);
  }
  return bytes;
}

// Long division by the reflected polynomial, one bit at a time.
uint32_t Definition(std::span<const std::byte> data, uint32_t crc = 0) {
  crc = ~crc;
  for (const std::byte b : data) {
    crc ^= static_cast<uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::vector<std::byte> RandomBytes(size_t count, uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.Next());
  return bytes;
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(CrcOf(""), 0u);
  EXPECT_EQ(CrcOf("a"), 0xC1D04330u);
  EXPECT_EQ(CrcOf("123456789"), 0xE3069283u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(Bytes(32, 0, 0)), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(Bytes(32, 0xFF, 0)), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(Bytes(32, 0, 1)), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(Bytes(32, 31, -1)), 0x113FDB5Cu);
}

TEST(Crc32c, EveryLengthAndAlignmentFollowsTheDefinition) {
  const std::vector<std::byte> data = RandomBytes(40, 1);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; begin + count <= data.size(); ++count) {
      const auto part = std::span(data).subspan(begin, count);
      ASSERT_EQ(Crc32c(part), Definition(part)) << begin << " " << count;
    }
  }
}

TEST(Crc32c, LongBuffersFollowTheDefinition) {
  // Around the multiples of the striped path's 3 x 4096 bytes.
  const std::vector<std::byte> data = RandomBytes(3 * 12288 + 64, 2);
  for (const size_t base : {size_t{4096}, size_t{12288}, size_t{2 * 12288}, size_t{3 * 12288}}) {
    for (int delta = -9; delta <= 9; ++delta) {
      const auto part = std::span(data).subspan(static_cast<size_t>(delta + 9),
                                                base + static_cast<size_t>(delta + 9));
      ASSERT_EQ(Crc32c(part), Definition(part)) << part.size();
    }
  }
}

TEST(Crc32c, ExtendsOverPieces) {
  const std::vector<std::byte> data = RandomBytes(30000, 3);
  const uint32_t whole = Crc32c(data);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4097}, size_t{12289}, data.size()}) {
    const uint32_t first = Crc32c(std::span(data).first(cut));
    EXPECT_EQ(Crc32c(std::span(data).subspan(cut), first), whole) << cut;
  }
}

TEST(Crc32c, EveryFlippedBitChangesIt) {
  std::vector<std::byte> data = RandomBytes(64, 4);
  const uint32_t whole = Crc32c(data);
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(Crc32c(data), whole) << bit;
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace hearth
