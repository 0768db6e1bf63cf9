// Flags in a file: equal to the command line, and refused with the line that is wrong.
#include "tools/hearth/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/config/generate_config.h"

namespace hearth::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::Status Apply(std::string_view text, GenerateConfig& config, GivenFields& given) {
  return ApplyConfigText(text, "a.toml", FieldsOf(config), given);
}

std::string Refusal(std::string_view text) {
  GenerateConfig config;
  GivenFields given;
  const absl::Status status = Apply(text, config, given);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(ConfigFile, KeysAreFieldsAndValuesAreThoseOfTheFlags) {
  GenerateConfig config;
  GivenFields given;
  ASSERT_EQ(Apply(R"(
    pack = "models/a b.pack"   # a comment
    max_tokens = 7
    temperature = 0.5
    chat = true
    stop = ["one", "two \"quoted\"\n"]
    ram_budget = "1.5GiB"
    slots = "40%"
  )",
                  config, given),
            absl::OkStatus());
  EXPECT_EQ(config.pack, "models/a b.pack");
  EXPECT_EQ(config.max_tokens, 7u);
  EXPECT_EQ(config.temperature, 0.5f);
  EXPECT_TRUE(config.chat);
  EXPECT_THAT(config.stop, ElementsAre("one", "two \"quoted\"\n"));
  EXPECT_EQ(config.cache.ram_budget, std::optional<uint64_t>(3ull << 29));
  EXPECT_TRUE(given.Has("slots"));
  EXPECT_FALSE(given.Has("spec"));
}

TEST(ConfigFile, TheCommandLineWins) {
  GenerateConfig config;
  config.stop = {"mine"};
  config.max_tokens = 3;
  GivenFields given;
  given.Add("stop");
  given.Add("max_tokens");
  ASSERT_EQ(Apply("stop = ['theirs']\nmax_tokens = 9\nseed = 4\n", config, given),
            absl::OkStatus());
  EXPECT_THAT(config.stop, ElementsAre("mine"));
  EXPECT_EQ(config.max_tokens, 3u);
  EXPECT_EQ(config.seed, 4u);
}

TEST(ConfigFile, WhatIsPrintedReadsBackTheSame) {
  GenerateConfig config;
  GivenFields given;
  ASSERT_EQ(Apply("stop = ['a\"b', '\\', 'c\td']\ntemperature = 0.1\nram_budget = '3MiB'\n"
                  "chat = false\nprompt = '''\nline\nline'''\nseed = 9007199254740993\n",
                  config, given),
            absl::OkStatus());
  const std::string text = ConfigFileText(FieldsOf(config), given);
  GenerateConfig again;
  GivenFields given_again;
  ASSERT_EQ(Apply(text, again, given_again), absl::OkStatus()) << text;
  EXPECT_EQ(PrintFields(FieldsOf(again)), PrintFields(FieldsOf(config)));
  EXPECT_EQ(ConfigFileText(FieldsOf(again), given_again), text);
  EXPECT_TRUE(given_again.Has("chat")) << "said, though it is the default";
  EXPECT_FALSE(given_again.Has("top_k"));
}

TEST(ConfigFile, RefusalsNameFileLineAndRemedy) {
  EXPECT_THAT(Refusal("pack = 'x'\nmax_token = 3\n"),
              testing::AllOf(HasSubstr("a.toml:2: "), HasSubstr("did you mean 'max_tokens'?")));
  EXPECT_THAT(Refusal("\n\nram_budget = 3\n"),
              testing::AllOf(HasSubstr("a.toml:3: ram_budget: "), HasSubstr("24GiB")));
  EXPECT_THAT(Refusal("[cache]\nslots = '3'\n"), HasSubstr("flat"));
  EXPECT_THAT(Refusal("max_tokens = [1, 2]\n"), HasSubstr("takes one value"));
  EXPECT_THAT(Refusal("max_tokens = 1979-05-27\n"), HasSubstr("expected text, a number"));
  EXPECT_THAT(Refusal("stop = [['x']]\n"), HasSubstr("expected text, a number"));
  EXPECT_THAT(Refusal("chat = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(Refusal("temperature = nan\n"), HasSubstr("temperature: "));
  EXPECT_THAT(Refusal("pack = 'a'\npack = 'b'\n"), HasSubstr("a.toml:2: "));
  EXPECT_THAT(Refusal("pack = \n"), HasSubstr("a.toml:1: "));
}

TEST(ConfigFile, AFileThatIsNotThereIsNamed) {
  GenerateConfig config;
  GivenFields given;
  const absl::Status status = ApplyConfigFile("/nowhere/h.toml", FieldsOf(config), given);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/h.toml"));
}

}  // namespace
}  // namespace hearth::cli
