// Flags to fields: what is accepted, and the words of every refusal.
#include "tools/hearth/flag_parser.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct SampleConfig {
  std::string prompt;
  uint32_t max_tokens = 128;
  float temperature = 0;
  bool chat = false;
  std::vector<std::string> stop;
  template <class Visitor>
  void Visit(Visitor&& v) {
    v("prompt", prompt, "text");
    v("max_tokens", max_tokens, "most tokens", {.minimum = 1});
    v("temperature", temperature, "0 = greedy", {.minimum = -2});
    v("chat", chat, "template");
    v("stop", stop, "ends");
  }
};

std::string ParseError(const Words& words) {
  SampleConfig config;
  const absl::StatusOr<GivenFields> given = ParseFlags(words, FieldsOf(config));
  if (given.ok()) return "";
  EXPECT_EQ(given.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(given.status().message());
}

TEST(FlagParser, TakesBothFormsAndRemembersWhatWasGiven) {
  SampleConfig config;
  const absl::StatusOr<GivenFields> given =
      ParseFlags(Words{"--prompt", "hi there", "--max-tokens=5", "--chat"}, FieldsOf(config));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(config.prompt, "hi there");
  EXPECT_EQ(config.max_tokens, 5u);
  EXPECT_TRUE(config.chat);
  EXPECT_TRUE(given->Has("max_tokens"));
  EXPECT_FALSE(given->Has("temperature"));
}

TEST(FlagParser, ValuesArriveByteForByte) {
  for (const std::string value :
       {"[a,b]", "-1", "a=b", "", " ", "\"quoted\"", "{}", "%%", "--", "-", "--not-a-flag", "++",
        "a\nb", "\xC3\xA9\xFF", "x,y", "-p", "[", "/x:y", "#"}) {
    SampleConfig two_words;
    EXPECT_TRUE(ParseFlags(Words{"--prompt", value}, FieldsOf(two_words)).ok()) << value;
    EXPECT_EQ(two_words.prompt, value);
    SampleConfig one_word;
    EXPECT_TRUE(ParseFlags(Words{"--prompt=" + value, "--chat"}, FieldsOf(one_word)).ok());
    EXPECT_EQ(one_word.prompt, value);
    EXPECT_TRUE(one_word.chat);
  }
}

TEST(FlagParser, NegativeNumbersAreValues) {
  SampleConfig config;
  EXPECT_TRUE(ParseFlags(Words{"--temperature", "-1.5"}, FieldsOf(config)).ok());
  EXPECT_EQ(config.temperature, -1.5f);
}

TEST(FlagParser, ListsMayBeGivenSeveralTimes) {
  SampleConfig config;
  EXPECT_TRUE(ParseFlags(Words{"--stop", "a,b", "--stop=[c]"}, FieldsOf(config)).ok());
  EXPECT_THAT(config.stop, ElementsAre("a,b", "[c]"));
}

TEST(FlagParser, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(ParseError({"--max-token", "5"}),
            "unknown flag --max-token; did you mean --max-tokens?");
  EXPECT_EQ(ParseError({"--max_tokens=5"}),
            "unknown flag --max_tokens; did you mean --max-tokens?");
  EXPECT_EQ(ParseError({"--entirely-other"}), "unknown flag --entirely-other");
  EXPECT_EQ(ParseError({"-p", "x"}), "unknown flag -p");
}

TEST(FlagParser, PrefixesOfAFlagAreNotThatFlag) {
  EXPECT_THAT(ParseError({"--max", "5"}), HasSubstr("unknown flag --max"));
}

TEST(FlagParser, LooseArgumentsAreRefused) {
  EXPECT_EQ(ParseError({"--chat", "yes"}), "unexpected argument 'yes'");
  EXPECT_EQ(ParseError({"--prompt", "two", "words"}), "unexpected argument 'words'");
}

TEST(FlagParser, AFlagGivenTwiceIsRefused) {
  EXPECT_EQ(ParseError({"--max-tokens", "5", "--max-tokens", "5"}),
            "--max-tokens: given 2 times; give it once");
  EXPECT_EQ(ParseError({"--chat", "--chat"}), "--chat: given 2 times; give it once");
}

TEST(FlagParser, MissingValuesAreRefused) {
  EXPECT_EQ(ParseError({"--prompt"}), "--prompt: needs a value (TEXT)");
  EXPECT_THAT(ParseError({"--prompt", "--chat"}), HasSubstr("found the flag --chat; write "));
  EXPECT_THAT(ParseError({"--prompt", "--chat"}), HasSubstr("--prompt=--chat"));
}

TEST(FlagParser, AFlagAsTheValueNeedsTheEqualsForm) {
  SampleConfig config;
  EXPECT_TRUE(ParseFlags(Words{"--prompt=--chat"}, FieldsOf(config)).ok());
  EXPECT_EQ(config.prompt, "--chat");
  EXPECT_FALSE(config.chat);
}

TEST(FlagParser, SwitchesTakeNoValue) {
  EXPECT_EQ(ParseError({"--chat=false"}), "--chat: takes no value, found 'false'");
}

TEST(FlagParser, RefusedValuesAreReportedUnderTheFlagsName) {
  EXPECT_EQ(ParseError({"--max-tokens", "0"}),
            "--max-tokens: found '0', expected a whole number of at least 1");
}

TEST(InFlagWords, TranslatesOnlyFieldNames) {
  SampleConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  const auto translate = [&](const char* message) {
    return std::string(InFlagWords(absl::InvalidArgumentError(message), fields).message());
  };
  EXPECT_EQ(translate("max_tokens: wrong"), "--max-tokens: wrong");
  EXPECT_EQ(translate("prompt, max_tokens: both"), "--prompt, --max-tokens: both");
  EXPECT_EQ(translate("pack/manifest.json: wrong"), "pack/manifest.json: wrong");
  EXPECT_EQ(translate("no colon"), "no colon");
}

}  // namespace
}  // namespace hearth::cli
