// Random bytes are a function of their place: a part made alone is that part of the whole.
#include "pack/synth/random_words.h"

#include <vector>

#include "gtest/gtest.h"

namespace hearth {
namespace {

std::vector<std::byte> Bytes(uint64_t stream, uint64_t begin_bytes, size_t count) {
  std::vector<std::byte> bytes(count);
  FillRandomWords(stream, begin_bytes, bytes, [](uint64_t word) { return word; });
  return bytes;
}

TEST(RandomWords, APartIsThatPartOfTheWhole) {
  const uint64_t stream = RandomStream(3, "layers.0.mlp.gate");
  const std::vector<std::byte> whole = Bytes(stream, 0, 103);
  for (const size_t begin : {size_t{8}, size_t{40}, size_t{96}}) {
    const std::vector<std::byte> part = Bytes(stream, begin, 103 - begin);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<int64_t>(begin)));
  }
}

TEST(RandomWords, SeedsAndNamesGiveOtherStreams) {
  EXPECT_NE(RandomStream(3, "a"), RandomStream(4, "a"));
  EXPECT_NE(RandomStream(3, "a"), RandomStream(3, "b"));
  EXPECT_NE(RandomStream(3, "ab"), RandomStream(3, "ba"));
  EXPECT_NE(Bytes(RandomStream(3, "a"), 0, 64), Bytes(RandomStream(3, "b"), 0, 64));
}

TEST(RandomWords, UnitFloatsStayBelowOne) {
  EXPECT_EQ(UnitFloat(0), 0.0f);
  EXPECT_LT(UnitFloat(UINT64_MAX), 1.0f);
}

}  // namespace
}  // namespace hearth
