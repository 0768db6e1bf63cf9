// Bars add up to their whole at every width, gauges and histories stay within theirs, and numbers
// are short and never "nan".
#include "tools/hearth/top/widgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace hearth::cli {
namespace {

constexpr Looks kPlain = {.ascii = true, .colours256 = false};

template <class Draw>
std::string Drawn(uint32_t rows, uint32_t columns, Draw draw) {
  CellGrid grid(rows, columns);
  draw(Area(grid));
  return PlainText(grid);
}

TEST(DrawShares, ThePartsFillTheBarExactly) {
  for (uint32_t width = 1; width < 200; width += 7) {
    const std::array<uint64_t, 4> values = {3, width, 1, 0};
    const std::string bar = Drawn(1, width, [&](const Area& a) { DrawShares(a, values, kPlain); });
    EXPECT_EQ(bar.size(), width + 1);
    EXPECT_EQ(bar.find_first_not_of("#=+.\n"), std::string::npos) << bar;
  }
}

TEST(DrawShares, ThreeTwoThreeOfEight) {
  const std::array<uint64_t, 4> values = {3, 0, 2, 3};
  EXPECT_EQ(Drawn(1, 8, [&](const Area& a) { DrawShares(a, values, kPlain); }), "###++...\n");
}

TEST(DrawShares, NothingServedIsNoBar) {
  const std::array<uint64_t, 4> values = {};
  EXPECT_EQ(Drawn(1, 4, [&](const Area& a) { DrawShares(a, values, kPlain); }), "----\n");
}

TEST(DrawGauge, FillsItsPartAndShowsItsMark) {
  const auto gauge = [](double part, double whole, std::optional<double> mark) {
    return Drawn(1, 10,
                 [&](const Area& a) { DrawGauge(a, part, whole, mark, Ink::kGood, kPlain); });
  };
  EXPECT_EQ(gauge(5, 10, std::nullopt), "#####-----\n");
  EXPECT_EQ(gauge(50, 10, std::nullopt), "##########\n");
  EXPECT_EQ(gauge(2, 10, 8.0), "##------|-\n");
  EXPECT_EQ(gauge(1, 0, 1.0), "----------\n");
  EXPECT_EQ(gauge(-1, 10, 99.0), "---------|\n");
  EXPECT_EQ(gauge(std::nan(""), std::nan(""), std::nullopt), "----------\n");
}

TEST(DrawHistory, NewestIsAtTheRightAndTheHighestFillsIt) {
  const std::vector<float> values = {9, 8, 4, 0, -1, 8};
  EXPECT_EQ(Drawn(1, 4, [&](const Area& a) { DrawHistory(a, values, Ink::kGood, kPlain); }),
            "-  #\n");
  EXPECT_EQ(Drawn(2, 8, [&](const Area& a) { DrawHistory(a, values, Ink::kGood, kPlain); }),
            "  #=   =\n  ###  #\n");
}

TEST(DrawHistory, NothingOrZerosDrawNothing) {
  const std::vector<float> zeros(3, 0);
  for (const std::span<const float> values : {std::span<const float>(), std::span(zeros)}) {
    EXPECT_EQ(Drawn(1, 4, [&](const Area& a) { DrawHistory(a, values, Ink::kGood, kPlain); }),
              "\n");
  }
}

TEST(DrawHistory, WhatIsAboveZeroShows) {
  const std::vector<float> values = {0.001F, 1000};
  EXPECT_EQ(Drawn(1, 2, [&](const Area& a) { DrawHistory(a, values, Ink::kGood, kPlain); }),
            ".#\n");
}

TEST(DrawHeat, OneCellALayerOrTheMeanOfNeighbours) {
  const std::vector<float> values = {1, 0, 0.5F, -1};
  const auto heat = [&](uint32_t columns, uint32_t per_value) {
    return Drawn(1, columns,
                 [&](const Area& a) { DrawHeat(a, values, per_value, Ink::kVram, kPlain); });
  };
  EXPECT_EQ(heat(4, 1), "#_-\n");
  EXPECT_EQ(heat(8, 2), "##__--\n");
  EXPECT_EQ(heat(2, 1), "--\n");  // (1 + 0) / 2, and 0.5 with one that is not known
  EXPECT_EQ(heat(0, 1), "\n");
}

TEST(DrawHeat, ShadesRiseWithTheValue) {
  CellGrid grid(1, 3);
  const std::vector<float> values = {0.1F, 0.5F, 1};
  DrawHeat(Area(grid), values, 1, Ink::kSsd, {.ascii = false, .colours256 = true});
  EXPECT_LT(grid.at(0, 0).style.shade, grid.at(0, 1).style.shade);
  EXPECT_EQ(grid.at(0, 2).style.shade, kShadeCount);
}

TEST(Texts, NumbersAreShort) {
  EXPECT_EQ(NumberText(0.5), "0.50");
  EXPECT_EQ(NumberText(9.994), "9.99");
  EXPECT_EQ(NumberText(9.996), "10.0");
  EXPECT_EQ(NumberText(123.4), "123");
  EXPECT_EQ(NumberText(999.6), "1,000");
  EXPECT_EQ(NumberText(std::nullopt), "-");
  EXPECT_EQ(NumberText(std::nan("")), "-");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(RateText(0.0), "0 B/s");
  EXPECT_EQ(RateText(999.6), "1.00 kB/s");
  EXPECT_EQ(RateText(25.1e9), "25.1 GB/s");
  EXPECT_EQ(RateText(3e15), "3,000 TB/s");
  EXPECT_EQ(RateText(std::nullopt), "-");
  EXPECT_EQ(TimeText(0.0), "0 us");
  EXPECT_EQ(TimeText(0.0123), "12.3 ms");
  EXPECT_EQ(TimeText(1.0), "1.00 s");
  EXPECT_EQ(TimeText(std::nullopt), "-");
  EXPECT_EQ(PercentText(0.6124), "61.2%");
  EXPECT_EQ(PercentText(std::nullopt), "-");
  EXPECT_EQ(AgeText(-5), "0s");
  EXPECT_EQ(AgeText(59'999'999'999), "59s");
  EXPECT_EQ(AgeText(3'734'000'000'000), "1h 02m");
  EXPECT_EQ(AgeText(INT64_C(183'600'000'000'000)), "2d 03h");
  EXPECT_EQ(CountText(1'234'567), "1,234,567");
  EXPECT_EQ(CountText(999), "999");
}

}  // namespace
}  // namespace hearth::cli
