// Log probabilities against the definition in long double, with ties and forbidden tokens.
#include "runtime/model/sampling/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/runtime/model/sampling/scripted_model.h"

namespace hearth {
namespace {

TEST(Logprobs, EqualTheDefinition) {
  for (const uint32_t vocab : {1u, 7u, 64u, 1000u, 5000u}) {
    const ScriptedModel model({.vocab_count = vocab, .seed = vocab, .logit_step = 0.25f});
    const std::vector<float> logits = model.Logits({});
    long double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<long double>(x));
    const auto count = std::min(vocab, kTopLogprobsMax);
    std::vector<TokenLogprob> top(count);
    const TokenId token = static_cast<TokenId>(vocab / 2);
    const TokenLogprob chosen = ReadLogprobs(logits, token, top);
    EXPECT_EQ(chosen.token, token);
    EXPECT_NEAR(chosen.logprob, logits[vocab / 2] - std::log(sum), 1e-6);
    const std::vector<TopLogit> want = LargestOf(logits, count);  // ties by rising token
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(top[i].token, want[i].token);
      EXPECT_NEAR(top[i].logprob, want[i].logit - std::log(sum), 1e-6);
    }
    EXPECT_EQ(ReadLogprobs(logits, token, {}), chosen) << "without alternatives";
  }
}

TEST(Logprobs, LogitsFarApartAndNone) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {kNone, 500, -500, 500, kNone};
  std::vector<TokenLogprob> top(5);
  EXPECT_NEAR(ReadLogprobs(logits, 3, top).logprob, -std::log(2.0), 1e-7);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_NEAR(top[2].logprob, -1000 - std::log(2.0), 1e-3);
  EXPECT_EQ(top[3].logprob, kNone);
  EXPECT_EQ(top[4].token, 4);
}

}  // namespace
}  // namespace hearth
