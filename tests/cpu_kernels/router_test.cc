// Top-k choice: k distinct indices, the larger value first, ties to the lower index, NaN refused.
#include "cpu_kernels/ops/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/row_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::optional<std::vector<uint32_t>> Choose(const std::vector<float>& values, uint32_t k) {
  std::vector<uint32_t> index(k + 1, 0xABCDu);
  std::vector<uint64_t> scratch(values.size() + 1, 77);
  const bool chosen = ScalarRow().top_k.fn({.values = values.data(),
                                            .count = static_cast<uint32_t>(values.size()),
                                            .k = k,
                                            .index = index.data(),
                                            .scratch = scratch.data()});
  EXPECT_EQ(index.back(), 0xABCDu) << "wrote beyond k";
  EXPECT_EQ(scratch.back(), 77u) << "wrote beyond the scratch";
  index.pop_back();
  if (!chosen) return std::nullopt;
  return index;
}

TEST(TopK, TiesAcrossTheBoundaryGoToTheLowerIndex) {
  EXPECT_THAT(Choose({1, 3, 2, 3, 2, 2}, 3), Optional(ElementsAre(1, 3, 2)));
  EXPECT_THAT(Choose({2, 2, 3, 2, 2, 3}, 4), Optional(ElementsAre(2, 5, 0, 1)));
}

TEST(TopK, AllEqualValuesChooseTheFirst) {
  EXPECT_THAT(Choose(std::vector<float>(512, 0.25f), 4), Optional(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(Choose(std::vector<float>(5, -kInfinity), 3), Optional(ElementsAre(0, 1, 2)));
}

TEST(TopK, ALargerValueWinsHoweverSmallTheDifference) {
  std::vector<float> values(32, 0.0f);
  values[0] = 0.5f;
  values[20] = 0.500002f;
  values[7] = std::nextafter(0.5f, 1.0f);
  EXPECT_THAT(Choose(values, 3), Optional(ElementsAre(20, 7, 0)));
}

TEST(TopK, MinusInfinityExceptOneStillGivesDistinctIndices) {
  std::vector<float> values(12, -kInfinity);
  values[9] = -5;
  EXPECT_THAT(Choose(values, 4), Optional(ElementsAre(9, 0, 1, 2)));
}

TEST(TopK, NegativeValuesAreOrderedAsNumbers) {
  EXPECT_THAT(Choose({-3, -1, -2, -1e-40f, -100}, 5), Optional(ElementsAre(3, 1, 2, 0, 4)));
}

TEST(TopK, SignedZerosAreEqual) {
  EXPECT_THAT(Choose({-0.0f, 0.0f, -0.0f, 0.0f}, 3), Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(Choose({-1.0f, -0.0f, 0.0f, 1e-45f}, 3), Optional(ElementsAre(3, 1, 2)));
}

TEST(TopK, InfinitiesAreOrdinaryExtremes) {
  EXPECT_THAT(Choose({1, kInfinity, 3e38f, -kInfinity}, 4), Optional(ElementsAre(1, 2, 0, 3)));
}

TEST(TopK, ANaNAnywhereIsRefused) {
  for (const size_t at : {size_t{0}, size_t{5}, size_t{11}}) {
    std::vector<float> values(12, 1.0f);
    values[at] = std::nanf("");
    EXPECT_EQ(Choose(values, 10), std::nullopt) << at;
    values[at] = -std::nanf("");
    EXPECT_EQ(Choose(values, 10), std::nullopt) << at;
  }
}

TEST(TopK, NoneAndAllMayBeChosen) {
  EXPECT_THAT(Choose({3, 1, 2}, 0), Optional(ElementsAre()));
  EXPECT_THAT(Choose({3, 1, 2}, 3), Optional(ElementsAre(0, 2, 1)));
}

// Twelve experts as the smallest router, 512 as the model's, 65,536 as the blocks of a long
// context. Few distinct values, so that ties are everywhere.
TEST(TopK, EqualsAStableSort) {
  struct Case {
    uint32_t count, k, distinct;
  };
  for (const Case c : {Case{12, 10, 5}, {512, 10, 40}, {512, 10, 1000000}, {65536, 512, 3000}}) {
    SCOPED_TRACE(c.count);
    Prng prng(c.count + c.distinct);
    std::vector<float> values(c.count);
    for (float& value : values) {
      value = (static_cast<float>(prng.Below(c.distinct)) - static_cast<float>(c.distinct / 2)) / 8;
    }
    std::vector<uint32_t> order(c.count);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
    order.resize(c.k);
    EXPECT_EQ(Choose(values, c.k), order);
  }
}

}  // namespace
}  // namespace hearth
