// The lists that `hearth replay` takes, and what its fields need together.
#include "runtime/config/replay_config.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReplayConfigTest, ListsAreSplitAtCommas) {
  EXPECT_THAT(SplitCommas("a,bc"), ElementsAre("a", "bc"));
  EXPECT_THAT(SplitCommas("a,,"), ElementsAre("a", "", ""));
  EXPECT_TRUE(SplitCommas("").empty());
}

TEST(ReplayConfigTest, SlotsAreCountsAndShares) {
  const auto slots = ParseSlotsList("10%,400");
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_DOUBLE_EQ((*slots)[0].share, 0.1);
  EXPECT_EQ((*slots)[1].count, 400u);
  for (const char* const wrong : {"", "0", "10%,", "-1", "a lot"}) {
    EXPECT_THAT(std::string(ParseSlotsList(wrong).status().message()), HasSubstr("slots: found"));
  }
}

TEST(ReplayConfigTest, WindowsAreOneToEightTokens) {
  const auto windows = ParseWindowList("1,8");
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_THAT(*windows, ElementsAre(1, 8));
  for (const char* const wrong : {"", "0", "9", "1.5", "1,"}) {
    EXPECT_THAT(std::string(ParseWindowList(wrong).status().message()), HasSubstr("window: found"));
  }
}

TEST(ReplayConfigTest, FieldsAreDocumentedAndCheckedTogether) {
  ReplayConfig config;
  EXPECT_EQ(CheckFields(FieldsOf(config)), absl::OkStatus());
  const auto message = [](const std::vector<std::pair<std::string, std::string>>& assignments) {
    ReplayConfig c;
    GivenFields given;
    for (const auto& [name, value] : assignments) {
      EXPECT_TRUE(SetField(FieldsOf(c), name, value).ok()) << name;
      given.Add(name);
    }
    return std::string(c.Validate(given).message());
  };
  EXPECT_EQ(message({{"trace", "x"}}), "");
  EXPECT_EQ(message({{"synthetic", "sticky"}, {"layers", "4"}}), "");
  EXPECT_THAT(message({}), HasSubstr("found neither"));
  EXPECT_THAT(message({{"trace", "x"}, {"synthetic", "sticky"}}), HasSubstr("found both"));
  EXPECT_THAT(message({{"trace", "x"}, {"layers", "4"}}), HasSubstr("layers: has no effect"));
  EXPECT_THAT(message({{"trace", "x"}, {"per_layer", "true"}, {"layer_slots_min", "4"}}),
              HasSubstr("layer_slots_min: has no effect"));
}

}  // namespace
}  // namespace hearth
