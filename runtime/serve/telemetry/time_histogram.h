// How long things took, counted in buckets whose bounds are the same everywhere: 10 us to 300 s,
// about four to a decade, 2 ms among them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hearth {

struct TimeHistogram {
  // Upper bounds, inclusive; longer ones go into a last bucket of their own.
  static constexpr std::array<int64_t, 30> kBoundsNs = {
      10'000,         20'000,         30'000,          50'000,          100'000,
      200'000,        300'000,        500'000,         1'000'000,       2'000'000,
      3'000'000,      5'000'000,      10'000'000,      20'000'000,      30'000'000,
      50'000'000,     100'000'000,    200'000'000,     300'000'000,     500'000'000,
      1'000'000'000,  2'000'000'000,  3'000'000'000,   5'000'000'000,   10'000'000'000,
      20'000'000'000, 30'000'000'000, 100'000'000'000, 200'000'000'000, 300'000'000'000};
  static constexpr size_t kBucketCount = kBoundsNs.size() + 1;

  std::array<uint64_t, kBucketCount> counts{};
  int64_t sum_ns = 0;

  // A negative time, which only a broken clock makes, counts as 0. Allocates nothing.
  void Add(int64_t ns) { Add(ns, 1); }
  void Add(int64_t ns, uint64_t times);  // `times` things that each took `ns`
  uint64_t count() const;
  // In seconds; none where nothing was counted.
  std::optional<double> Mean() const;
  // `q` from 0 to 1; within a bucket as if evenly spread, the last bucket's bound for what is
  // beyond.
  std::optional<double> Quantile(double q) const;
  // What was counted since `before`, an earlier reading of the same histogram.
  TimeHistogram Since(const TimeHistogram& before) const;
  bool operator==(const TimeHistogram&) const = default;
};

}  // namespace hearth
