// Goal: split patterns mean what Oniguruma makes of them, foreign constructs are refused by name,
// and no text or pattern makes the work unbounded.
#include "runtime/model/tokenizer/splitter.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/model/tokenizer/split_dialect.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> Pieces(std::string_view pattern, std::string_view text) {
  const absl::StatusOr<Splitter> splitter = Splitter::Create(pattern);
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  if (!splitter.ok()) return {};
  std::vector<std::string_view> pieces;
  splitter->Split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(Splitter, CutsAsTheQwenPatternSays) {
  EXPECT_THAT(Pieces(kQwenPattern, "I'm 42,  ok!\n\n x"),
              ElementsAre("I", "'m", " ", "4", "2", ",", " ", " ok", "!\n\n", " x"));
  EXPECT_THAT(Pieces(kQwenPattern, "x  \n  y"), ElementsAre("x", "  \n", " ", " y"));
  EXPECT_THAT(Pieces(kQwenPattern, "e\u0301a"), ElementsAre("e\u0301a"));
}

TEST(Splitter, WhatNoMatchCoversIsAPieceOfItsOwn) {
  EXPECT_THAT(Pieces(R"(\p{N}+)", "ab12c"), ElementsAre("ab", "12", "c"));
  EXPECT_THAT(Pieces("b", "abba"), ElementsAre("a", "b", "b", "a"));
  EXPECT_THAT(Pieces("x", "abc"), ElementsAre("abc"));
  EXPECT_THAT(Pieces("x", ""), ElementsAre());
}

// U+180E is white space to PCRE2 but not to Unicode since 6.3; U+1C89 and U+31350 are letters of
// Unicode 16.0 and 15.0, U+1E4F0 a digit, U+0897 a mark.
TEST(Splitter, ClassesAreThoseOfUnicode16) {
  EXPECT_THAT(Pieces(R"(\s+)", "a\u180e b"), ElementsAre("a\u180e", " ", "b"));
  EXPECT_THAT(Pieces(R"(\S+)", " \u180e\u0085\u2028"), ElementsAre(" ", "\u180e", "\u0085\u2028"));
  EXPECT_THAT(Pieces(R"(\p{L}+)", "1\u1c89\U00031350a2"),
              ElementsAre("1", "\u1c89\U00031350a", "2"));
  EXPECT_THAT(Pieces(R"([^\p{N}]+)", "\u1c89\U0001e4f0x"),
              ElementsAre("\u1c89", "\U0001e4f0", "x"));
  EXPECT_THAT(Pieces(R"(a\p{M}*)", "a\u0897\u0301a"), ElementsAre("a\u0897\u0301", "a"));
}

TEST(Splitter, SyntaxIsTranslatedNotPassedOn) {
  EXPECT_THAT(Pieces(R"([a-c.\-\]]{2,3}?|(?:x(y|z))+)", "ab-]xyxz#"),
              ElementsAre("ab", "-]", "xyxz", "#"));
  EXPECT_THAT(Pieces(R"(\.\*|\t#)", "a.*\t#"), ElementsAre("a", ".*", "\t#"));
  EXPECT_THAT(Pieces("\u4f60[\u597d-\u597f]", "\u4f60\u597d!"), ElementsAre("\u4f60\u597d", "!"));
  EXPECT_THAT(Pieces("(?i:'s)|x", "'S'\u017fx"), ElementsAre("'S", "'\u017f", "x"));
}

struct RefusedPattern {
  std::string pattern;
  const char* message;
};

TEST(SplitDialect, ForeignConstructsAreRefusedByName) {
  const RefusedPattern refused[] = {
      {"^a", "a bare ^"},
      {"a$", "a bare $"},
      {"a.b", "a bare ."},
      {"*a", "a bare *"},
      {"a)", "an unopened )"},
      {"(a", "the end inside a group"},
      {"(?<=a)b", "a group other than"},
      {"(?<name>a)", "a group other than"},
      {"(?>a)", "a group other than"},
      {"(?i)a", "a group other than"},
      {"(?i:[a-z])", "(?i: around more than letters"},
      {"(?i:ss)", "the pair ss"},
      {"(?i:aSt)", "the pair st"},
      {"(?i:a", "the end inside a group"},
      {"[a", "the end inside a class"},
      {"[]a]", "an empty class"},
      {"[a&&b]", "an unescaped & in a class"},
      {"[[:alpha:]]", "an unescaped [ in a class"},
      {"[a-\\s]", "a range without a plain end"},
      {"[z-a]", "a range whose end is before its start"},
      {"[\\S]", "\\S in a class"},
      {"\\d", "the escape \\d"},
      {"\\p{Lu}", "the escape \\p"},
      {"\\P{L}", "the escape \\P"},
      {"(a)\\1", "the escape \\1"},
      {"a\\", "an escape of no letter"},
      {"a++", "a quantifier after a quantifier"},
      {"a{2}{3}", "a quantifier after a quantifier"},
      {"a{,3}", "a counted quantifier other than"},
      {"a{3,2}", "a counted quantifier other than"},
      {"a{1001}", "a counted quantifier other than"},
      {"a{2}?", "a lazy {n}"},
      {"a{2", "a bare {"},
      {std::string(40, '(') + "a" + std::string(40, ')'), "too many nested groups"},
  };
  for (const RefusedPattern& one : refused) {
    const absl::StatusOr<std::string> translated = TranslateSplitPattern(one.pattern);
    EXPECT_EQ(translated.status().code(), absl::StatusCode::kUnimplemented) << one.pattern;
    EXPECT_THAT(std::string(translated.status().message()), HasSubstr(one.message)) << one.pattern;
  }
  EXPECT_EQ(TranslateSplitPattern(std::string(5000, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(TranslateSplitPattern("\xFF").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Splitter, APatternThatMatchesNothingAtAllIsRefused) {
  for (const char* pattern : {"a*", "", "a|", "(?=a)"}) {
    EXPECT_FALSE(Splitter::Create(pattern).ok()) << pattern;
  }
}

TEST(Splitter, LongRunsAreOnePieceEach) {
  for (const char* unit : {" ", "a", "!", "\n", "\u4f60", "\u0301"}) {
    std::string run;
    while (run.size() < 1000000) run += unit;
    EXPECT_THAT(Pieces(kQwenPattern, run), ElementsAre(run)) << unit;
  }
}

// (a+)+b has 2^n ways to fail on n letters: the engine stops, and the rest stays one piece.
TEST(Splitter, AHostilePatternCostsPiecesNotTime) {
  const std::string text = "b" + std::string(60, 'a') + "c";
  const std::vector<std::string> pieces = Pieces("(a+)+b|b|c", text);
  std::string joined;
  for (const std::string& piece : pieces) joined += piece;
  EXPECT_EQ(joined, text);
  EXPECT_EQ(pieces.front(), "b");
}

}  // namespace
}  // namespace hearth
