// Spans of one arena are aligned, do not overlap and hold what was asked for.
#include "runtime/base/scratch_arena.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hearth {
namespace {

TEST(ScratchArena, SpansAreAlignedApartAndZero) {
  ScratchArena arena;
  std::span<int8_t> bytes;
  std::span<float> floats;
  std::span<double> none;
  std::span<uint64_t> words;
  arena.Reserve(bytes, 65);
  arena.Reserve(floats, 3);
  arena.Reserve(none, 0);
  arena.Reserve(words, 1000);
  ASSERT_TRUE(arena.Allocate().ok());
  EXPECT_EQ(bytes.size(), 65u);
  EXPECT_EQ(floats.size(), 3u);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(words.size(), 1000u);
  EXPECT_GE(arena.bytes(), 65 + 12 + 8000u);
  for (const void* p : {static_cast<void*>(bytes.data()), static_cast<void*>(floats.data()),
                        static_cast<void*>(words.data())}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  }
  std::fill(bytes.begin(), bytes.end(), int8_t{-1});
  std::fill(floats.begin(), floats.end(), 2.0f);
  EXPECT_EQ(std::count(words.begin(), words.end(), 0u), 1000);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), -1), 65);
}

TEST(ScratchArena, SizeThatCannotBeMappedIsRefused) {
  ScratchArena arena;
  std::span<float> huge;
  arena.Reserve(huge, size_t{1} << 50);
  EXPECT_FALSE(arena.Allocate().ok());
}

}  // namespace
}  // namespace hearth
