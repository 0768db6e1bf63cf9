// The results of a replay as text: every number where its column says.
#include "tools/hearth/replay_report.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;

std::vector<ReplayRow> Rows() {
  ReplayRow row{.policy = "lru",
                .window_tokens = 4,
                .slot_count = 1638,
                .slot_share = 0.4,
                .result = {.window_count = 10,
                           .layers = {{.distinct = 100,
                                       .distinct_hits = 50,
                                       .entries = 200,
                                       .entry_hits = 150,
                                       .uploads = 30},
                                      {.distinct = 300, .distinct_hits = 300, .entries = 300}}},
                .ns = 1'000'000,
                .lru_hit_rate = 0.875,
                .belady_hit_rate = 0.9375};
  return {row};
}

TEST(ReplayReportTest, TheTableNamesTheWindowsAndSlots) {
  std::ostringstream out;
  PrintReplayTable(Rows(), 1 << 20, out);
  EXPECT_THAT(out.str(), HasSubstr("windows of 4, 1,638 slots (40.0%)\n"));
  EXPECT_THAT(out.str(), HasSubstr("lru             0.8750    0.3000           1.50         3.0"
                                   "   0.0625        0.0%      10000\n"));
}

TEST(ReplayReportTest, CsvHasAHeaderAndOneLineForEachRow) {
  std::ostringstream out;
  PrintReplayCsv(Rows(), 1 << 20, out);
  EXPECT_THAT(out.str(), HasSubstr("policy,window_tokens,slots,"));
  EXPECT_THAT(out.str(), HasSubstr("\nlru,4,1638,0.400000,0,10,400,0.875000,0.750000,0.300000,"
                                   "1.5000,3145728,0.062500,0.000000,10000\n"));
}

TEST(ReplayReportTest, JsonHasTheCountsOfEveryLayer) {
  const auto json = ReplayJson(Rows(), 1 << 20);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["layers"][1]["distinct_hits"], 300);
  EXPECT_EQ(json[0]["uploads"], 30);
  EXPECT_DOUBLE_EQ(json[0]["layer_mean_hit_rate"], 0.75);
}

}  // namespace
}  // namespace hearth::cli
