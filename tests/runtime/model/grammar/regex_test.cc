// Patterns against the standard library and by hand.
#include "runtime/model/grammar/regex.h"

#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/grammar/nfa.h"
#include "runtime/model/grammar/regex_escape.h"
#include "runtime/model/grammar/text_leaves.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth::grammar {
namespace {

using ::testing::HasSubstr;

std::optional<Dfa> DfaOf(std::string_view pattern, TextEncoding encoding = TextEncoding::kRaw) {
  const absl::StatusOr<Regex> regex = Regex::Parse(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status() << " in " << pattern;
  HEARTH_CHECK(regex.ok());
  Nfa nfa;
  const Nfa::State start = nfa.AddState();
  const Nfa::State accept = regex->AddTo(nfa, start, encoding);
  const absl::StatusOr<std::optional<Dfa>> dfa = nfa.ToDfa(start, accept);
  EXPECT_TRUE(dfa.ok()) << dfa.status();
  HEARTH_CHECK(dfa.ok());
  return *dfa;
}

bool Matches(std::string_view pattern, std::string_view text) {
  const std::optional<Dfa> dfa = DfaOf(pattern);
  return dfa.has_value() && dfa->Matches(text);
}

TEST(Regex, AgreesWithTheStandardLibraryOnRandomTexts) {
  const char* patterns[] = {"a",
                            "^a",
                            "a$",
                            "^a$",
                            "^$",
                            "",
                            "a|b",
                            "^a|b$",
                            "^(a|b)$",
                            "^(?:ab)*$",
                            "a{2}",
                            "^a{2,}$",
                            "^a{1,3}b?$",
                            "^[a-c]+$",
                            "^[^a]$",
                            "^[^ab]*c$",
                            "a.c",
                            "^.{3}$",
                            "\\d+",
                            "^\\w\\W$",
                            "^\\s*\\S$",
                            "^(a(b|c)*)+$",
                            "(^a$|^b$)",
                            "^a*?b$",
                            "^[-a]+$",
                            "^[a\\-c]$",
                            "^[\\d_]+$",
                            "^(ab?){2}$",
                            "[.]",
                            "^a||b$",
                            "^(a{0,2}){2}$",
                            "\\.",
                            "^(|a)b$",
                            "^[\\]a]+$",
                            "^(a|ab)(c|bcd)$"};
  const std::string alphabet = "abcd01._- \n]";
  Random random(7);
  for (const char* pattern : patterns) {
    const std::regex expected(pattern, std::regex::ECMAScript);
    const std::optional<Dfa> dfa = DfaOf(pattern);
    ASSERT_TRUE(dfa.has_value()) << pattern;
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      const int length = static_cast<int>(random() % 7);
      for (int k = 0; k < length; ++k) text += alphabet[random() % (i % 2 ? 4 : alphabet.size())];
      EXPECT_EQ(dfa->Matches(text), std::regex_search(text, expected))
          << pattern << " with " << text;
    }
  }
}

TEST(Regex, CharactersAreCodePoints) {
  EXPECT_TRUE(Matches("^.$", "\xC3\xA9"));
  EXPECT_TRUE(Matches("^.{2}$", "\xE2\x82\xAC\xF0\x9F\x98\x80"));
  EXPECT_TRUE(Matches("^[\xC3\xA0-\xC3\xBF]$", "\xC3\xA9"));
  EXPECT_FALSE(Matches("^[\xC3\xA0-\xC3\xBF]$", "\xC3\x80"));
  EXPECT_TRUE(Matches("^\\u00e9$", "\xC3\xA9"));
  EXPECT_TRUE(Matches("^\\u{1F600}$", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(Matches("^\\ud83d\\ude00$", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(Matches("^[^a]$", "\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(Matches("^.$", "\xED\xA0\x80"));      // a surrogate
  EXPECT_FALSE(Matches("^.$", "\xF4\x90\x80\x80"));  // beyond Unicode
  EXPECT_FALSE(Matches("^.$", "\xC0\x80"));          // overlong
  EXPECT_TRUE(Matches("^\\x41\\cA\\0$", std::string_view("A\x01\0", 3)));
}

// Every code point in one of two classes that are each other's complement, and in one only.
TEST(Regex, ClassesSplitAllOfUnicode) {
  const std::optional<Dfa> in = DfaOf("^[\\w\\u0100-\\u07ff\\ue000-\\uefff\\u{10000}-\\u{2ffff}]$");
  const std::optional<Dfa> out =
      DfaOf("^[^\\w\\u0100-\\u07ff\\ue000-\\uefff\\u{10000}-\\u{2ffff}]$");
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    Nfa nfa;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    const bool word =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
    const bool expected = word || (c >= 0x100 && c <= 0x7FF) || (c >= 0xE000 && c <= 0xEFFF) ||
                          (c >= 0x10000 && c <= 0x2FFFF);
    EXPECT_EQ(in->Matches(text), expected) << c;
    EXPECT_EQ(out->Matches(text), !expected) << c;
  }
}

TEST(Regex, JsonTextsAreWrittenWithTheShortestEscapes) {
  const std::optional<Dfa> dfa = DfaOf("^[\\s\\S]{3}$", TextEncoding::kJson);
  EXPECT_TRUE(dfa->Matches("a\\\"b"));
  EXPECT_TRUE(dfa->Matches("\\\\\\n\\u001f"));
  EXPECT_FALSE(dfa->Matches("a\"b"));
  EXPECT_FALSE(dfa->Matches("a\\u0041b"));
  EXPECT_FALSE(dfa->Matches("a\\/b"));
  EXPECT_FALSE(dfa->Matches("a\nb"));
  EXPECT_TRUE(DfaOf("^[\"-\\\\]$", TextEncoding::kJson)->Matches("\\\\"));
  EXPECT_TRUE(DfaOf("^[\"-\\\\]$", TextEncoding::kJson)->Matches("\\\""));
  EXPECT_TRUE(DfaOf("^[\"-\\\\]$", TextEncoding::kJson)->Matches("A"));
  EXPECT_FALSE(DfaOf("^[\"-\\\\]$", TextEncoding::kJson)->Matches("]"));
}

TEST(Regex, RefusesByName) {
  struct Case {
    const char* pattern;
    absl::StatusCode code;
    const char* says;
  };
  const Case cases[] = {
      {"(?=a)", absl::StatusCode::kUnimplemented, "look-ahead"},
      {"(?!a)", absl::StatusCode::kUnimplemented, "look-ahead"},
      {"(?<=a)", absl::StatusCode::kUnimplemented, "look-behind"},
      {"(?i:a)", absl::StatusCode::kUnimplemented, "flags"},
      {"(a)\\1", absl::StatusCode::kUnimplemented, "back reference"},
      {"\\bword", absl::StatusCode::kUnimplemented, "word boundary"},
      {"\\p{L}", absl::StatusCode::kUnimplemented, "Unicode property"},
      {"a^b", absl::StatusCode::kUnimplemented, "anchors"},
      {"(a$)b", absl::StatusCode::kUnimplemented, "anchors"},
      {"(a", absl::StatusCode::kInvalidArgument, "without its ')'"},
      {"a)", absl::StatusCode::kInvalidArgument, "without its '('"},
      {"[a", absl::StatusCode::kInvalidArgument, "without its ']'"},
      {"[b-a]", absl::StatusCode::kInvalidArgument, "ends before it begins"},
      {"*a", absl::StatusCode::kInvalidArgument, "repetition of nothing"},
      {"a{3,2}", absl::StatusCode::kInvalidArgument, "below its least"},
      {"\\", absl::StatusCode::kInvalidArgument, "backslash"},
      {"\\q", absl::StatusCode::kInvalidArgument, "unknown escape"},
      {"\\ud800", absl::StatusCode::kInvalidArgument, "surrogate"},
      {"\xFF", absl::StatusCode::kInvalidArgument, "UTF-8"},
      {"a{5000}", absl::StatusCode::kResourceExhausted, "repetition"},
  };
  for (const Case& c : cases) {
    const absl::Status status = Regex::Parse(c.pattern).status();
    EXPECT_EQ(status.code(), c.code) << c.pattern << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.pattern;
  }
  EXPECT_EQ(Regex::Parse(std::string(200, '(')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Regex::Parse(std::string(kPatternBytesMax + 1, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Patterns whose automata are too large end in an error, soon.
TEST(Regex, LargeAutomataAreRefused) {
  for (const char* pattern :
       {"(a|b)*a(a|b){13}", "((((a{1,99}){1,99}){1,99}){1,99}){1,99}", "([^a]{400}){400}"}) {
    const absl::StatusOr<Regex> regex = Regex::Parse(pattern);
    ASSERT_TRUE(regex.ok()) << pattern;
    Nfa nfa;
    const Nfa::State start = nfa.AddState();
    const Nfa::State accept = regex->AddTo(nfa, start, TextEncoding::kJson);
    EXPECT_EQ(nfa.ToDfa(start, accept).status().code(), absl::StatusCode::kResourceExhausted)
        << pattern;
  }
}

TEST(PatternCursor, CountsThatAreNoneAreText) {
  PatternCursor cursor{U"{a}", 0};
  EXPECT_FALSE(cursor.TakeCounts().has_value());
  EXPECT_EQ(cursor.at, 0u);
  EXPECT_TRUE(Matches("^a{b}$", "a{b}"));
  EXPECT_TRUE(Matches("^a{,2}$", "a{,2}"));
}

}  // namespace
}  // namespace hearth::grammar
