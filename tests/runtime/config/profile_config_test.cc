// The flags of `hearth profile` and its group: lists in order, and what must be there together.
#include "runtime/config/profile_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

template <class Config>
std::string FaultOf(const Config& config, std::initializer_list<const char*> names = {}) {
  GivenFields given;
  for (const char* name : names) given.Add(name);
  return std::string(config.Validate(given).message());
}

TEST(ProfileConfig, ListsOfFieldsAreInOrder) {
  ProfileConfig profile;
  EXPECT_TRUE(CheckFields(FieldsOf(profile)).ok()) << CheckFields(FieldsOf(profile));
  ProfileReportConfig report;
  EXPECT_TRUE(CheckFields(FieldsOf(report)).ok());
  ProfileMergeConfig merge;
  EXPECT_TRUE(CheckFields(FieldsOf(merge)).ok());
  ProfileDiffConfig diff;
  EXPECT_TRUE(CheckFields(FieldsOf(diff)).ok());
}

TEST(ProfileConfig, WantsPackTextsAndAPlace) {
  ProfileConfig config{.pack = "p", .text = {"t"}, .out = "o"};
  EXPECT_EQ(FaultOf(config), "");
  EXPECT_THAT(FaultOf(config, {"trace_tokens_max"}), HasSubstr("no effect without trace"));
  EXPECT_THAT(FaultOf(config, {"cpus", "threads"}), HasSubstr("found both"));
  config.out.clear();
  EXPECT_THAT(FaultOf(config), HasSubstr("out: is required"));
  config = {.pack = "p", .out = "o"};
  EXPECT_THAT(FaultOf(config), HasSubstr("text: is required"));
  config = {.text = {"t"}, .out = "o"};
  EXPECT_THAT(FaultOf(config), HasSubstr("pack: is required"));
}

TEST(ProfileConfig, ReportMergeAndDiffWantTheirProfiles) {
  EXPECT_THAT(FaultOf(ProfileReportConfig{}), HasSubstr("profile: is required"));
  EXPECT_THAT(FaultOf(ProfileReportConfig{.profile = "p"}, {"trace_tokens_max"}),
              HasSubstr("no effect without trace"));
  EXPECT_EQ(FaultOf(ProfileReportConfig{.profile = "p", .trace = "t"}, {"trace_tokens_max"}), "");
  EXPECT_THAT(FaultOf(ProfileMergeConfig{.profile = {"a"}, .out = "o"}), HasSubstr("found 1"));
  EXPECT_THAT(FaultOf(ProfileMergeConfig{.profile = {"a", "b"}}), HasSubstr("out: is required"));
  EXPECT_EQ(FaultOf(ProfileMergeConfig{.profile = {"a", "b"}, .out = "o"}), "");
  EXPECT_THAT(FaultOf(ProfileDiffConfig{.profile = {"a", "b", "c"}}), HasSubstr("found 3"));
  EXPECT_EQ(FaultOf(ProfileDiffConfig{.profile = {"a", "b"}}), "");
}

}  // namespace
}  // namespace hearth
