// Leaves against brute force, parsers and lists of examples.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/model/grammar/dfa.h"
#include "runtime/model/grammar/number_leaves.h"
#include "runtime/model/grammar/text_leaves.h"
#include "tests/runtime/model/grammar/test_random.h"

// text_formats.cc is tested through FormatPattern.

namespace hearth::grammar {
namespace {

DecimalBound Bound(std::string_view text, bool exclusive = false) {
  const absl::StatusOr<Decimal> value = Decimal::Parse(text);
  HEARTH_CHECK(value.ok());
  return {*value, exclusive};
}

TEST(IntegerDfa, ExactlyTheIntegersOfARange) {
  Random random(3);
  for (int round = 0; round < 150; ++round) {
    const int64_t low = static_cast<int64_t>(random() % 2400) - 1200;
    const int64_t high = low + static_cast<int64_t>(random() % 600);
    NumberRules rules;
    if (round % 5 != 0) rules.least = Bound(std::to_string(low), round % 2 == 0);
    if (round % 7 != 0) rules.most = Bound(std::to_string(high) + (round % 3 ? "" : ".5"));
    if (round % 4 == 0) rules.multiple_of = 1 + static_cast<int64_t>(random() % 13);
    const auto dfa = IntegerDfa(rules);
    ASSERT_TRUE(dfa.ok());
    for (int64_t value = -1900; value <= 1900; ++value) {
      const bool above = !rules.least || (round % 2 == 0 ? value > low : value >= low);
      const bool below = !rules.most || value <= high + (round % 3 == 0 && high < 0 ? 0 : 0);
      const bool multiple = !rules.multiple_of || value % *rules.multiple_of == 0;
      // "-7.5" lies below -7.
      const bool cut = rules.most && round % 3 == 0 && high < 0 && value == high;
      EXPECT_EQ(dfa->has_value() && (*dfa)->Matches(std::to_string(value)),
                above && below && multiple && !cut)
          << value << " in " << low << ".." << high << " round " << round;
    }
  }
}

TEST(IntegerDfa, SpellingAndLimits) {
  const Dfa any = AnyIntegerDfa();
  for (const char* good : {"0", "-1", "7", "999999999999999999", "-10"}) {
    EXPECT_TRUE(any.Matches(good)) << good;
  }
  for (const char* bad : {"", "-", "01", "1.0", "1e3", "+1", "1000000000000000000", " 1"}) {
    EXPECT_FALSE(any.Matches(bad)) << bad;
  }
  NumberRules rules;
  rules.least = Bound("1e30");
  EXPECT_FALSE(IntegerDfa(rules)->has_value());
  rules.least = Bound("-1e30");
  EXPECT_TRUE((*IntegerDfa(rules))->Matches("-999999999999999999"));
  rules.least = Bound("3", true);
  rules.most = Bound("4", true);
  EXPECT_FALSE(IntegerDfa(rules)->has_value());
}

TEST(NumberDfa, ExactlyTheNumbersOfARange) {
  Random random(5);
  const auto text_of = [](int64_t thousandths, int digits) {
    const int64_t magnitude = std::abs(thousandths);
    std::string text = (thousandths < 0 ? "-" : "") + std::to_string(magnitude / 1000);
    std::string fraction = std::to_string(1000 + magnitude % 1000).substr(1);
    return digits == 0 ? text : text + "." + fraction.substr(0, static_cast<size_t>(digits));
  };
  for (int round = 0; round < 120; ++round) {
    int64_t low = static_cast<int64_t>(random() % 40000) - 20000;
    if (round % 3 == 0) low = low / 1000 * 1000;
    if (round % 10 == 0) low = 0;
    const int64_t high = low + static_cast<int64_t>(random() % 9000);
    const bool low_out = round % 2 == 0;
    const bool high_out = round % 4 < 2;
    NumberRules rules;
    if (round % 5 != 0) rules.least = Bound(text_of(low, 3), low_out);
    if (round % 7 != 0) rules.most = Bound(text_of(high, 3), high_out);
    const auto dfa = NumberDfa(rules);
    ASSERT_TRUE(dfa.ok());
    for (int i = 0; i < 3000; ++i) {
      int64_t value = low - 3000 + static_cast<int64_t>(random() % 15000);
      if (i < 9) value = low - 4 + i;
      if (i >= 9 && i < 18) value = high - 13 + i;
      if (i % 10 == 0) value = value / 1000 * 1000;
      const bool above = !rules.least || (low_out ? value > low : value >= low);
      const bool below = !rules.most || (high_out ? value < high : value <= high);
      const std::string text = text_of(value, 3);
      EXPECT_EQ(dfa->has_value() && (*dfa)->Matches(text), above && below)
          << text << " in " << text_of(low, 3) << ".." << text_of(high, 3) << " round " << round;
      if (value % 1000 == 0 && value != 0) {
        EXPECT_EQ(dfa->has_value() && (*dfa)->Matches(text_of(value, 0)), above && below) << text;
      }
    }
  }
}

TEST(NumberDfa, SpellingAndZero) {
  const Dfa any = AnyNumberDfa();
  for (const char* good : {"0", "-0", "1.5", "-2e10", "3.25E-7", "999999999999999999.5"}) {
    EXPECT_TRUE(any.Matches(good)) << good;
  }
  for (const char* bad : {"1.", ".5", "1e", "1e100", "--1", "0x1", "00", "NaN"}) {
    EXPECT_FALSE(any.Matches(bad)) << bad;
  }
  NumberRules below_zero;
  below_zero.most = Bound("0", true);
  EXPECT_FALSE((*NumberDfa(below_zero))->Matches("-0.000"));
  EXPECT_TRUE((*NumberDfa(below_zero))->Matches("-0.001"));
  NumberRules above_zero;
  above_zero.least = Bound("0", true);
  EXPECT_FALSE((*NumberDfa(above_zero))->Matches("0.0"));
  EXPECT_TRUE((*NumberDfa(above_zero))->Matches("0.01"));
}

TEST(Decimal, ReadsWhatJsonWrites) {
  EXPECT_EQ(Decimal::Parse("-120.50")->whole, "120");
  EXPECT_EQ(Decimal::Parse("-120.50")->fraction, "5");
  EXPECT_EQ(Decimal::Parse("1.5e3")->whole, "1500");
  EXPECT_EQ(Decimal::Parse("25e-4")->fraction, "0025");
  EXPECT_FALSE(Decimal::Parse("-0")->negative);
  EXPECT_EQ(Decimal::Parse("1e999").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Decimal::Parse("1e-30").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Decimal::Parse("x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(Compare(*Decimal::Parse("-10"), *Decimal::Parse("-9.5")), 0);
  EXPECT_LT(Compare(*Decimal::Parse("9.25"), *Decimal::Parse("10")), 0);
  EXPECT_EQ(Compare(*Decimal::Parse("1.0"), *Decimal::Parse("1")), 0);
}

// What the string leaf accepts of random bytes is what a JSON parser accepts.
TEST(JsonString, AgreesWithAParser) {
  const auto leaves = CommonLeaves::Make();
  Random random(11);
  const std::vector<std::string> parts = {"a",
                                          "\\",
                                          "\"",
                                          "u",
                                          "\\u",
                                          "d83d",
                                          "de00",
                                          "0041",
                                          "\\ud83d",
                                          "\\ude00",
                                          "\xC3",
                                          "\xA9",
                                          "\xE2\x82\xAC",
                                          "\xF0\x9F\x98\x80",
                                          "\n",
                                          "\x7F",
                                          "\\n",
                                          "\\/",
                                          "\xED\xA0\x80",
                                          "\xC0\x80",
                                          "\xF4\x90\x80\x80",
                                          "DBff",
                                          "\\uDBFF\\uDFff"};
  int accepted = 0;
  for (int i = 0; i < 60000; ++i) {
    std::string text = "\"";
    const size_t count = random() % 5;
    for (size_t k = 0; k < count; ++k) text += parts[random() % parts.size()];
    text += "\"";
    const bool parses =
        !nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_discarded();
    EXPECT_EQ(leaves->json_string->Matches(text), parses) << text;
    accepted += parses ? 1 : 0;
  }
  EXPECT_GT(accepted, 10000);
}

TEST(JsonQuoted, IsWhatAParserReadsBack) {
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "\xC3\xA9\xF0\x9F\x98\x80";
  EXPECT_EQ(nlohmann::json::parse(JsonQuoted(text)).get<std::string>(), text);
  EXPECT_EQ(JsonQuoted(text), nlohmann::json(text).dump());
}

TEST(OtherName, IsAnyNameButThese) {
  const std::vector<std::string> names = {"a", "ab", "\xC3\xA9", "with\"quote", ""};
  const auto dfa = OtherNameDfa(names);
  ASSERT_TRUE(dfa.ok());
  for (const char* other : {"\"b\"", "\"abc\"", "\"A\"", "\"\xC3\xA8\"", "\"\xC3\xA9\xC3\xA9\""}) {
    EXPECT_TRUE(dfa->Matches(other)) << other;
  }
  for (const char* not_other : {"\"a\"", "\"ab\"", "\"\xC3\xA9\"", "\"\"", "\"b", "\"\\u0061\"",
                                "\"with\\\"quote\"", "b\"", "\"b\"\"", "\"\xC3\""}) {
    EXPECT_FALSE(dfa->Matches(not_other)) << not_other;
  }
}

TEST(RawText, EndsAtTheFirstEndAndHoldsNoMark) {
  const auto leaves = CommonLeaves::Make();
  const Dfa& raw = *leaves->raw_text;
  for (const char* good : {"", "text", "two\nlines", "a < b", "</param>", "\n\n", "\n</parameter",
                           "<parameter>", "x\n</paramete r>", "tab\t\xE2\x82\xAC"}) {
    EXPECT_TRUE(raw.Matches(std::string(good) + "\n</parameter>")) << good;
  }
  for (const char* bad : {"</parameter>", "a\n</parameter>\nb", "<parameter=x>", "</function>",
                          "<tool_call>", "</tool_call>", "\r", "\x01", "\xFF"}) {
    EXPECT_FALSE(raw.Matches(std::string(bad) + "\n</parameter>")) << bad;
  }
  EXPECT_FALSE(leaves->raw_line->Matches("a\nb\n</parameter>"));
  EXPECT_TRUE(leaves->raw_line->Matches("a b\n</parameter>"));
}

TEST(Formats, AcceptAndRefuse) {
  struct Case {
    const char* format;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {"date",
       {"2024-02-29", "2000-02-29", "1999-12-31"},
       {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01", "0000-01-01"}},
      {"time", {"00:00:00Z", "23:59:59.5+02:00"}, {"24:00:00Z", "12:00:00", "12:60:00Z"}},
      {"date-time", {"2024-02-29T12:00:00Z"}, {"2024-02-29 12:00:00Z", "2024-02-30T12:00:00Z"}},
      {"duration", {"P1Y2M3D", "PT5M", "P3W", "P1DT12H"}, {"P", "PT", "1D", "P1H"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}},
      {"ipv4", {"0.0.0.0", "255.249.10.1"}, {"256.1.1.1", "1.1.1", "01.1.1.1"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1:2"},
       {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9"}},
      {"hostname", {"a", "example.com"}, {"-a", "a..b", "a-"}},
      {"email", {"a@b.co", "first.last@example.com"}, {"a@b", "@b.co", "a b@c.de", "a.@b.co"}},
      {"uri", {"https://example.com/a?b=c#d", "ftp://host:21/"}, {"example.com", "http://", "a b"}},
  };
  for (const Case& c : cases) {
    const std::optional<std::string> pattern = FormatPattern(c.format);
    ASSERT_TRUE(pattern.has_value()) << c.format;
    StringRules rules;
    rules.patterns = {*pattern};
    const auto dfa = PatternDfa(rules, TextEncoding::kJson);
    ASSERT_TRUE(dfa.ok() && dfa->has_value()) << c.format << dfa.status();
    for (const char* text : c.good) EXPECT_TRUE((*dfa)->Matches(JsonQuoted(text))) << text;
    for (const char* text : c.bad) EXPECT_FALSE((*dfa)->Matches(JsonQuoted(text))) << text;
    EXPECT_THAT(SupportedFormats(), ::testing::HasSubstr(c.format));
  }
  EXPECT_FALSE(FormatPattern("idn-email").has_value());
}

TEST(PatternDfa, LengthsHoldTogetherWithPatterns) {
  StringRules rules;
  rules.patterns = {"^[a-z]+$", "b"};
  rules.length_min = 3;
  rules.length_max = 4;
  const auto dfa = PatternDfa(rules, TextEncoding::kJson);
  ASSERT_TRUE(dfa.ok() && dfa->has_value());
  EXPECT_TRUE((*dfa)->Matches("\"abc\""));
  EXPECT_TRUE((*dfa)->Matches("\"bbbb\""));
  EXPECT_FALSE((*dfa)->Matches("\"ab\""));
  EXPECT_FALSE((*dfa)->Matches("\"acd\""));
  EXPECT_FALSE((*dfa)->Matches("\"abcde\""));
  rules.length_min = 5;
  EXPECT_FALSE(PatternDfa(rules, TextEncoding::kJson)->has_value());
}

TEST(Dfa, IntersectionAcceptsWhatBothDo) {
  const Dfa a = LiteralDfa("abc");
  const Dfa b = LiteralDfa("abd");
  EXPECT_FALSE(Intersect(a, b)->has_value());
  EXPECT_TRUE((*Intersect(a, a))->Matches("abc"));
  EXPECT_TRUE(LiteralDfa("").Matches(""));
  DfaBuilder empty;
  EXPECT_FALSE(std::move(empty).Finish().has_value());
}

}  // namespace
}  // namespace hearth::grammar
