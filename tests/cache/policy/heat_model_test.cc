// What sightings, seeds and time make of a score.
#include "cache/policy/heat_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cache/policy/profile_seed.h"

namespace hearth {
namespace {

constexpr HeatShape kShape = {.row_count = 2, .expert_count = 4};

void See(HeatModel& heat, uint32_t row, const std::vector<uint32_t>& experts,
         TrafficKind kind = TrafficKind::kWindow, uint32_t entry_count = 1) {
  std::vector<ExpertSighting> sightings;
  for (const uint32_t e : experts) sightings.push_back({ExpertId(e), entry_count});
  heat.Observe(row, {.layer = LayerId(row), .experts = sightings, .kind = kind});
}

TEST(TwoScaleHeatTest, IsTheSumOfTwoDecayedCounts) {
  const auto heat =
      MakeTwoScaleHeat(kShape, {.fast_keep = 0.5f, .slow_keep = 0.9f, .fast_weight = 2});
  See(*heat, 0, {1});
  EXPECT_FLOAT_EQ(heat->scores(0)[1], 2 + 1);
  heat->Age(2);
  EXPECT_FLOAT_EQ(heat->scores(0)[1], 2 * 0.25f + 0.81f);
  See(*heat, 0, {1});
  EXPECT_FLOAT_EQ(heat->scores(0)[1], 2 * 1.25f + 1.81f);
  EXPECT_EQ(heat->scores(1)[1], 0);
}

TEST(TwoScaleHeatTest, ACountForEverKeepsItsOrderBeyondWhatAFloatCanCount) {
  const auto heat = MakeTwoScaleHeat(kShape, {.fast_keep = 0, .slow_keep = 1, .fast_weight = 0});
  heat->Seed(0, std::vector<float>{1 << 23, 1 << 22, 0, 0});
  for (int i = 0; i < 100; ++i) {
    See(*heat, 0, {0, 2});
    heat->Age(1);
  }
  EXPECT_LT(heat->scores(0)[0], 1 << 23);
  EXPECT_GT(heat->scores(0)[0], 1.9f * heat->scores(0)[1]);
  EXPECT_GT(heat->scores(0)[2], 40);
}

TEST(RecencyHeatTest, TheLastSeenIsHottestAndSeedsRankTheUnseen) {
  const auto heat = MakeRecencyHeat(kShape);
  heat->Seed(0, std::vector<float>{5, 9, 0, 0});
  See(*heat, 0, {2});
  heat->Age(1);
  See(*heat, 0, {3});
  const auto scores = heat->scores(0);
  EXPECT_GT(scores[3], scores[2]);
  EXPECT_GT(scores[2], scores[1]);
  EXPECT_GT(scores[1], scores[0]);
}

TEST(RecencyHeatTest, ItsClockIsSetBackWithoutMixingUpRecentExperts) {
  const auto heat = MakeRecencyHeat({.row_count = 1, .expert_count = 4});
  See(*heat, 0, {0});
  for (int i = 0; i < (1 << 23) + 10; ++i) {
    if (i == 1 << 23) See(*heat, 0, {1});
    heat->Age(1);
  }
  See(*heat, 0, {2});
  const auto scores = heat->scores(0);
  EXPECT_LT(scores[2], 1 << 23);
  EXPECT_GT(scores[2], scores[1]);
  EXPECT_GT(scores[1], scores[0]);
}

TEST(ForecastHeatTest, LearnsThatExpertsComeBackAfterALongWhile) {
  // Two experts at a time, in turn: who was just seen does not come in the next 20 tokens.
  const auto heat = MakeForecastHeat({.row_count = 1, .expert_count = 64});
  for (uint32_t t = 0; t < 6000; ++t) {
    const uint32_t e = t / 20 % 3;
    See(*heat, 0, {e, 10 + e});
    heat->Age(1);
  }
  // It is the turn of 0 and 10 now; 2 and 12 were seen last.
  EXPECT_GT(heat->scores(0)[0], heat->scores(0)[5]);
  EXPECT_GT(heat->scores(0)[2], heat->scores(0)[5]);
}

TEST(ForecastHeatTest, IsAboutHowOftenAnExpertComes) {
  const auto heat = MakeForecastHeat({.row_count = 1, .expert_count = 8});
  for (uint32_t t = 0; t < 8000; ++t) {
    std::vector<uint32_t> seen = {0};
    if (t % 2 == 0) seen.push_back(1);
    if (t % 8 == 0) seen.push_back(2);
    See(*heat, 0, seen);
    heat->Age(1);
  }
  EXPECT_NEAR(heat->scores(0)[0], kForecastTokens, 1);
  EXPECT_NEAR(heat->scores(0)[1], kForecastTokens / 2.0, 1);
  EXPECT_NEAR(heat->scores(0)[2], kForecastTokens / 8.0, 1);
  EXPECT_NEAR(heat->scores(0)[5], 0, 0.2);
}

TEST(ForecastHeatTest, AProfileIsTakenForTheRatesThatItStates) {
  const auto heat = MakeForecastHeat(kShape);
  heat->Seed(1, ProfileSightings(std::vector<uint64_t>{100, 25, 0, 0}, 100));
  const auto scores = heat->scores(1);
  EXPECT_NEAR(scores[0], 4 * scores[1], 1e-3);
  EXPECT_GT(scores[1], 0);
  EXPECT_EQ(scores[2], 0);
  EXPECT_EQ(heat->scores(0)[0], 0);
}

TEST(ForecastHeatTest, PromptsOfOddLengthsAndEmptyPassesKeepItFinite) {
  const auto heat = MakeForecastHeat(kShape);
  for (uint32_t t = 0; t < 3000; ++t) {
    const bool prompt = t % 3 == 0;
    See(*heat, t % 2, {t % 4}, prompt ? TrafficKind::kPrompt : TrafficKind::kWindow, t % 50);
    heat->Age(prompt ? kPromptWeight * (t % 300) : t % 5);
  }
  for (uint32_t row = 0; row < 2; ++row) {
    for (const float score : heat->scores(row)) EXPECT_TRUE(std::isfinite(score));
  }
}

}  // namespace
}  // namespace hearth
