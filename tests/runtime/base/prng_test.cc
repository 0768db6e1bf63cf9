// Random numbers: the published stream, ranges, and the shape of the counter-based generator.
#include "runtime/base/prng.h"

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(Prng, StreamIsSplitMix64) {
  // The published stream of seed 1234567.
  Prng prng(1234567);
  EXPECT_EQ(prng.Next(), 6457827717110365317u);
  EXPECT_EQ(prng.Next(), 3203168211198807973u);
  EXPECT_EQ(prng.Next(), 9817491932198370423u);
  EXPECT_EQ(prng.Next(), 4593380528125082431u);
  EXPECT_EQ(prng.Next(), 16408922859458223821u);
}

TEST(Prng, BelowStaysBelowAndReachesEveryValue) {
  Prng prng(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = prng.Below(7);
    ASSERT_LT(x, 7u);
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(prng.Below(1), 0u);
  EXPECT_LT(prng.Below(UINT64_MAX), UINT64_MAX);
}

// Pearson's statistic of 64 equal cells; 63 degrees of freedom exceed 117 once in 20,000.
constexpr double kChiSquareMax = 117;
template <class Draw>
double ChiSquareOf(Draw draw) {
  constexpr uint32_t kCount = 64000;
  std::array<uint32_t, 64> cells{};
  for (uint32_t i = 0; i < kCount; ++i) {
    const double u = draw(i);
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
    ++cells[static_cast<size_t>(u * 64)];
  }
  double sum = 0;
  for (const uint32_t c : cells) sum += (c - 1000.0) * (c - 1000.0) / 1000.0;
  return sum;
}

TEST(Prng, UniformIsUniform) {
  Prng prng(5);
  EXPECT_LT(ChiSquareOf([&](uint32_t) { return prng.Uniform(); }), kChiSquareMax);
}

TEST(CounterUniform, IsUniformOverEachArgument) {
  EXPECT_LT(ChiSquareOf([](uint32_t i) { return CounterUniform(i, 0, 0); }), kChiSquareMax);
  EXPECT_LT(ChiSquareOf([](uint32_t i) { return CounterUniform(0, i, 0); }), kChiSquareMax);
  EXPECT_LT(ChiSquareOf([](uint32_t i) { return CounterUniform(0, 0, i); }), kChiSquareMax);
  EXPECT_LT(ChiSquareOf([](uint32_t i) { return CounterUniform(i, i, 0); }), kChiSquareMax);
}

TEST(CounterUniform, NeighboursAreIndependent) {
  // Differences modulo 1 of successive counters, seeds and indices are uniform if the two are
  // independent.
  const auto wrapped = [](double a, double b) {
    return a >= b ? a - b : std::min(a - b + 1, 0x1.fffffffffffffp-1);
  };
  EXPECT_LT(ChiSquareOf([&](uint32_t i) {
              return wrapped(CounterUniform(3, i, 0), CounterUniform(3, i + 1, 0));
            }),
            kChiSquareMax);
  EXPECT_LT(ChiSquareOf([&](uint32_t i) {
              return wrapped(CounterUniform(i, 7, 0), CounterUniform(i + 1, 7, 0));
            }),
            kChiSquareMax);
  EXPECT_LT(ChiSquareOf([&](uint32_t i) {
              return wrapped(CounterUniform(3, i, 0), CounterUniform(3, i, 1));
            }),
            kChiSquareMax);
}

TEST(CounterUniform, SeedAndCounterAreNotInterchangeable) {
  EXPECT_NE(CounterUniform(1, 2, 0), CounterUniform(2, 1, 0));
  EXPECT_NE(CounterUniform(0, 0, 0), CounterUniform(1, 1, 0));
  EXPECT_NE(CounterUniform(1, 1, 0), CounterUniform(2, 2, 0));
}

TEST(CounterUniform, IsAConstantOfItsArguments) {
  static_assert(CounterUniform(42, 7, 0) == CounterUniform(42, 7, 0));
  const uint64_t inner = SplitMix64(42 ^ SplitMix64(7));
  EXPECT_EQ(CounterUniform(42, 7, 3), static_cast<double>(SplitMix64(inner + 3) >> 11) * 0x1p-53);
}

}  // namespace
}  // namespace hearth
