// The stack of tokens and its counts, against counting again from scratch.
#include "runtime/model/sampling/token_history.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<TokenId> DistinctOf(std::span<const TokenId> tokens) {
  std::vector<TokenId> distinct;
  for (const TokenId t : tokens) {
    if (std::find(distinct.begin(), distinct.end(), t) == distinct.end()) distinct.push_back(t);
  }
  return distinct;
}

void ExpectEqualsModel(const TokenHistory& real, const std::vector<TokenId>& model,
                       uint32_t prompt_count) {
  const std::span<const TokenId> output = std::span(model).subspan(prompt_count);
  ASSERT_EQ(real.token_count(), model.size());
  ASSERT_EQ(real.prompt_count(), prompt_count);
  ASSERT_EQ(real.output_count(), output.size());
  ASSERT_THAT(real.tokens(), ElementsAreArray(model));
  ASSERT_THAT(real.distinct_tokens(), ElementsAreArray(DistinctOf(model)));
  ASSERT_THAT(real.distinct_output_tokens(), ElementsAreArray(DistinctOf(output)));
  for (uint32_t t = 0; t < real.vocab_count(); ++t) {
    const auto token = static_cast<TokenId>(t);
    ASSERT_EQ(real.output_occurrences(token), std::count(output.begin(), output.end(), token));
  }
}

TEST(TokenHistory, BehavesLikeCountingFromScratch) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Prng prng(seed);
    const auto vocab = static_cast<uint32_t>(1 + prng.Below(8));
    TokenHistory real({.vocab_count = vocab, .token_count_reserve = 8, .count_tokens = true});
    std::vector<TokenId> model;
    uint32_t prompt_count = 0;
    for (int step = 0; step < 100; ++step) {
      const uint64_t op = prng.Below(20);
      if (op == 0) {
        model.resize(prng.Below(6));
        for (TokenId& t : model) t = static_cast<TokenId>(prng.Below(vocab));
        prompt_count = static_cast<uint32_t>(model.size());
        real.Reset(model);
      } else if (op < 7) {
        const auto kept =
            static_cast<uint32_t>(prompt_count + prng.Below(model.size() - prompt_count + 1));
        model.resize(kept);
        real.PopTo(kept);
      } else {
        model.push_back(static_cast<TokenId>(prng.Below(vocab)));
        real.Push(model.back());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(real, model, prompt_count))
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(TokenHistory, WithoutCountingOnlyTheTokensAreKept) {
  TokenHistory history({.vocab_count = 4});
  history.Reset(std::vector<TokenId>{1, 1});
  history.Push(3);
  EXPECT_THAT(history.tokens(), ElementsAre(1, 1, 3));
  EXPECT_EQ(history.output_count(), 1u);
  EXPECT_THAT(history.distinct_tokens(), IsEmpty());
  history.PopTo(2);
  EXPECT_THAT(history.tokens(), ElementsAre(1, 1));
}

}  // namespace
}  // namespace hearth
