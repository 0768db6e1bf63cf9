// Every flag of `hearth top` is documented and has a default that its parser takes; flags without
// effect are refused.
#include "runtime/config/top_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(TopConfig, TheListIsSound) {
  TopConfig config;
  EXPECT_EQ(CheckFields(FieldsOf(config)), absl::OkStatus());
}

TEST(TopConfig, FieldsWithoutEffectAreRefused) {
  TopConfig config;
  GivenFields given;
  given.Add("url");
  EXPECT_TRUE(config.Validate(given).ok());
  config.replay = "a file";
  EXPECT_THAT(std::string(config.Validate(given).message()), testing::HasSubstr("url"));
  GivenFields key;
  key.Add("key_file");
  EXPECT_FALSE(config.Validate(key).ok());
}

}  // namespace
}  // namespace hearth
