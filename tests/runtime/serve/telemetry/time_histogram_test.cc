// Buckets hold what is at most their bound, quantiles lie within their bucket, and what nothing is
// known of is not a number.
#include "runtime/serve/telemetry/time_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace hearth {
namespace {

TEST(TimeHistogram, BoundsRiseAndHoldTwoMilliseconds) {
  EXPECT_TRUE(std::ranges::is_sorted(TimeHistogram::kBoundsNs));
  EXPECT_TRUE(std::ranges::binary_search(TimeHistogram::kBoundsNs, 2'000'000));
}

TEST(TimeHistogram, ABoundBelongsToItsOwnBucket) {
  TimeHistogram h;
  for (size_t b = 0; b < TimeHistogram::kBoundsNs.size(); ++b) {
    h.Add(TimeHistogram::kBoundsNs[b]);
    EXPECT_EQ(h.counts[b], 1u);
    h.Add(TimeHistogram::kBoundsNs[b] + 1);
    EXPECT_EQ(h.counts[b + 1], 1u);
    h.counts = {};
  }
}

TEST(TimeHistogram, NothingCountedIsNothingKnown) {
  const TimeHistogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.Mean(), std::nullopt);
  EXPECT_EQ(h.Quantile(0.99), std::nullopt);
}

TEST(TimeHistogram, AClockThatGoesBackCountsAsNoTime) {
  TimeHistogram h;
  h.Add(-5);
  EXPECT_EQ(h.counts[0], 1u);
  EXPECT_EQ(h.sum_ns, 0);
}

TEST(TimeHistogram, SeveralOfOneTimeAreAsManyOfIt) {
  TimeHistogram many;
  many.Add(3'000'000, 4);
  TimeHistogram one;
  for (int i = 0; i < 4; ++i) one.Add(3'000'000);
  EXPECT_EQ(many, one);
  EXPECT_DOUBLE_EQ(*many.Mean(), 0.003);
}

TEST(TimeHistogram, QuantilesLieInTheBucketOfTheirValue) {
  TimeHistogram h;
  for (int i = 0; i < 98; ++i) h.Add(150'000);  // between 100 and 200 us
  h.Add(40'000'000, 2);                         // between 30 and 50 ms
  EXPECT_GT(*h.Quantile(0.5), 1e-4);
  EXPECT_LE(*h.Quantile(0.5), 2e-4);
  EXPECT_GT(*h.Quantile(0.99), 3e-2);
  EXPECT_LE(*h.Quantile(0.99), 5e-2);
  EXPECT_LE(*h.Quantile(0), *h.Quantile(1));
}

TEST(TimeHistogram, BeyondTheLastBoundTheQuantileIsTheBound) {
  TimeHistogram h;
  h.Add(INT64_C(3600) * 1'000'000'000);
  EXPECT_EQ(h.counts.back(), 1u);
  EXPECT_DOUBLE_EQ(*h.Quantile(0.5), 300);
}

TEST(TimeHistogram, SinceIsWhatCameInBetween) {
  TimeHistogram h;
  h.Add(1'000'000);
  const TimeHistogram before = h;
  h.Add(2'000'000);
  h.Add(70'000'000);
  TimeHistogram between;
  between.Add(2'000'000);
  between.Add(70'000'000);
  EXPECT_EQ(h.Since(before), between);
}

}  // namespace
}  // namespace hearth
