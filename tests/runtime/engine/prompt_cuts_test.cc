// Where prompts are cut: at turns, never in too long passes, and the same for every longer prompt.
#include "runtime/engine/prompt_cuts.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/prng.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using Cuts = std::vector<uint32_t>;
constexpr TokenId kMarker = 1;

std::vector<TokenId> Text(uint32_t count, const std::vector<uint32_t>& markers) {
  std::vector<TokenId> tokens(count, 7);
  for (const uint32_t at : markers) tokens[at] = kMarker;
  return tokens;
}
constexpr PromptCutRule kRule{.turn_marker = kMarker, .tokens_min = 4, .tokens_max = 10};

TEST(PromptCuts, APassBeginsAtATurnOnceTheLastOneIsLongEnough) {
  EXPECT_EQ(PromptCuts(Text(9, {0, 4, 6}), kRule), (Cuts{4, 9}));
  EXPECT_EQ(PromptCuts(Text(9, {0, 3, 6}), kRule), (Cuts{6, 9}));
  EXPECT_EQ(PromptCuts(Text(9, {0, 1, 2, 3}), kRule), (Cuts{9}));
  EXPECT_EQ(PromptCuts(Text(12, {0, 4, 8}), kRule), (Cuts{4, 8, 12}));
}

TEST(PromptCuts, NoPassIsLongerThanTheLimit) {
  EXPECT_EQ(PromptCuts(Text(25, {}), kRule), (Cuts{10, 20, 25}));
  EXPECT_EQ(PromptCuts(Text(20, {}), kRule), (Cuts{10, 20}));
  EXPECT_EQ(PromptCuts(Text(25, {10, 14}), kRule), (Cuts{10, 14, 24, 25}));
}

TEST(PromptCuts, TextsOfFewTokens) {
  EXPECT_EQ(PromptCuts({}, kRule), Cuts{});
  EXPECT_EQ(PromptCuts(Text(1, {0}), kRule), Cuts{1});
  EXPECT_EQ(
      PromptCuts(Text(3, {0, 1, 2}), {.turn_marker = kMarker, .tokens_min = 1, .tokens_max = 1}),
      (Cuts{1, 2, 3}));
}

TEST(PromptCuts, WithoutAMarkerOnlyTheLimitCuts) {
  EXPECT_EQ(PromptCuts(Text(12, {5}), {.tokens_min = 4, .tokens_max = 10}), (Cuts{10, 12}));
}

TEST(PromptCuts, TheCutsOfAPrefixAreCutsOfTheWhole) {
  Prng prng(3);
  for (int round = 0; round < 300; ++round) {
    const auto below = [&prng](uint32_t n) { return static_cast<uint32_t>(prng.Uniform() * n); };
    const uint32_t count = 1 + below(120), largest = 1 + below(30);
    const PromptCutRule rule{
        .turn_marker = kMarker, .tokens_min = 1 + below(largest), .tokens_max = largest};
    std::vector<TokenId> tokens(count);
    const uint32_t variety = 2 + below(12);
    for (TokenId& t : tokens) t = static_cast<TokenId>(below(variety));
    const Cuts whole = PromptCuts(tokens, rule);
    for (uint32_t length = 1; length <= count; ++length) {
      Cuts want;
      for (const uint32_t cut : whole) {
        if (cut < length) want.push_back(cut);
      }
      want.push_back(length);
      ASSERT_EQ(PromptCuts(std::span(tokens).first(length), rule), want);
    }
  }
}

TEST(PromptCuts, TheRuleOfAModelFollowsItsPassesAndItsVocabulary) {
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(
      ReadFixtureFile(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json"), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  const auto rule = [&](uint32_t rows) {
    return PromptCutRuleOf({.prompt_rows_max = rows}, *tokenizer);
  };
  EXPECT_EQ(rule(1024), (PromptCutRule{.turn_marker = 1, .tokens_min = 128, .tokens_max = 1024}));
  EXPECT_EQ(rule(32), (PromptCutRule{.turn_marker = 1, .tokens_min = 16, .tokens_max = 32}));
  EXPECT_EQ(rule(1), (PromptCutRule{.turn_marker = 1, .tokens_min = 1, .tokens_max = 1}));
}

}  // namespace
}  // namespace hearth
