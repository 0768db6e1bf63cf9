// The sampler against its definition written out plainly, and each rule of sampler.h by itself.
#include "runtime/model/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "tests/runtime/model/sampling/scripted_model.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sampler Make(SamplerConfig config) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(std::move(config));
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

TokenId Choose(Sampler& sampler, const std::vector<float>& logits) {
  const absl::StatusOr<TokenId> token = sampler.Sample(logits);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(-1);
}

std::vector<TokenProbability> Probabilities(Sampler& sampler, const std::vector<float>& logits) {
  const auto got = sampler.Distribution(logits);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return {};
  return {got->begin(), got->end()};
}

std::vector<TokenId> TokensOf(const std::vector<TokenProbability>& probabilities) {
  std::vector<TokenId> tokens;
  for (const TokenProbability& p : probabilities) tokens.push_back(p.token);
  return tokens;
}

// Steps 1 to 4 of sampler.h, from the tokens themselves.
std::vector<float> AdjustedLogits(const SamplerConfig& config, std::span<const TokenId> prompt,
                                  std::span<const TokenId> output, std::vector<float> logits) {
  const SamplingParams& p = config.params;
  for (const LogitBias& b : p.logit_bias) logits[static_cast<size_t>(b.token)] += b.bias;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const auto in_output = std::count(output.begin(), output.end(), token);
    const auto seen = in_output + std::count(prompt.begin(), prompt.end(), token);
    float& x = logits[i];
    if (seen > 0) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (in_output > 0) {
      x -= p.frequency_penalty * static_cast<float>(in_output) + p.presence_penalty;
    }
  }
  if (output.size() < p.min_tokens) {
    for (const TokenId t : config.stop_tokens) logits[static_cast<size_t>(t)] = -kInfinity;
  }
  return logits;
}

// Steps 5 to 8, by sorting everything; the probability of each token of the vocabulary.
std::vector<double> DefinedProbabilities(const SamplingParams& p,
                                         const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> result(logits.size());
  if (p.greedy()) {
    result[order[0]] = 1;
    return result;
  }
  if (p.top_k != 0) order.resize(p.top_k);
  std::vector<double> weights;
  double total = 0;
  for (const size_t i : order) {
    weights.push_back(std::exp((double{logits[i]} - double{logits[order[0]]}) / p.temperature));
    total += weights.back();
  }
  double before = 0;
  double kept = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const bool in_top_p = rank == 0 || p.top_p == 1 || before < p.top_p * total;
    before += weights[rank];
    if (!in_top_p || weights[rank] < p.min_p * weights[0]) continue;
    result[order[rank]] = weights[rank];
    kept += weights[rank];
  }
  for (double& x : result) x /= kept;
  return result;
}

float Pick(Prng& prng, std::initializer_list<float> values) {
  return values.begin()[prng.Below(values.size())];
}

SamplerConfig RandomConfig(Prng& prng, uint32_t vocab) {
  SamplerConfig config{.vocab_count = vocab};
  SamplingParams& p = config.params;
  p.temperature = Pick(prng, {0, 0.01f, 0.7f, 1, 5});
  if (prng.Below(2) == 0) p.top_k = static_cast<uint32_t>(1 + prng.Below(vocab));
  if (prng.Below(2) == 0) p.top_p = static_cast<float>(prng.Uniform());
  if (prng.Below(3) == 0) p.min_p = static_cast<float>(prng.Uniform());
  p.repetition_penalty = Pick(prng, {1, 1, 1.3f, 0.8f});
  p.frequency_penalty = Pick(prng, {0, 0, 1, -0.5f});
  p.presence_penalty = Pick(prng, {0, 0, 1, -0.25f});
  if (prng.Below(2) == 0) p.logit_bias = {{static_cast<TokenId>(prng.Below(vocab)), 2.5f}};
  p.seed = prng.Next();
  p.min_tokens = static_cast<uint32_t>(prng.Below(4));
  if (vocab > 2) config.stop_tokens = {0, static_cast<TokenId>(vocab - 1)};
  return config;
}

TEST(Sampler, DistributionFollowsTheDefinition) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    const auto vocab = static_cast<uint32_t>(1 + prng.Below(40));
    const SamplerConfig config = RandomConfig(prng, vocab);
    Sampler sampler = Make(config);
    std::vector<TokenId> prompt(prng.Below(6));
    std::vector<TokenId> output(prng.Below(6));
    for (TokenId& t : prompt) t = static_cast<TokenId>(prng.Below(vocab));
    for (TokenId& t : output) t = static_cast<TokenId>(prng.Below(vocab));
    ASSERT_TRUE(sampler.SetPrompt(prompt).ok());
    for (const TokenId t : output) sampler.Push(t);
    const ScriptedModel model({.vocab_count = vocab, .seed = seed, .logit_step = 0.5f});
    const std::vector<float> logits = model.Logits(output);

    const std::vector<double> want =
        DefinedProbabilities(config.params, AdjustedLogits(config, prompt, output, logits));
    std::vector<double> got(vocab);
    for (const TokenProbability& p : Probabilities(sampler, logits)) {
      EXPECT_GT(p.probability, 0);
      got[static_cast<size_t>(p.token)] += p.probability;
    }
    for (uint32_t t = 0; t < vocab; ++t) {
      ASSERT_NEAR(got[t], want[t], 1e-13) << "seed " << seed << " token " << t;
    }
    ASSERT_GT(want[static_cast<size_t>(Choose(sampler, logits))], 0) << "seed " << seed;
  }
}

TEST(Sampler, LargeVocabularyFollowsTheDefinition) {
  constexpr uint32_t kVocab = 20000;
  const ScriptedModel model({.vocab_count = kVocab, .seed = 3, .logit_step = 0.01f});
  const std::vector<float> logits = model.Logits({});
  struct Case {
    float temperature;
    uint32_t top_k;
    float top_p;
    float min_p;
  };
  const Case cases[] = {{1, 20, 1, 0},         {1, 4096, 0.9f, 0}, {1, 5000, 1, 0},
                        {1, 5000, 0.77f, 0},   {1, kVocab, 1, 0},  {1, 0, 0.001f, 0},
                        {1, 0, 0.3f, 0},       {9, 0, 0.95f, 0},   {9, 0, 0.99999f, 0},
                        {0.01f, 0, 0.951f, 0}, {1, 0, 1, 0.1f},    {1, 0, 0.9f, 0.013f}};
  for (const Case& c : cases) {
    SamplerConfig config{.vocab_count = kVocab};
    config.params.temperature = c.temperature;
    config.params.top_k = c.top_k;
    config.params.top_p = c.top_p;
    config.params.min_p = c.min_p;
    Sampler sampler = Make(config);
    const std::vector<double> want = DefinedProbabilities(config.params, logits);
    std::vector<double> got(kVocab);
    for (const TokenProbability& p : Probabilities(sampler, logits)) {
      got[static_cast<size_t>(p.token)] += p.probability;
    }
    for (uint32_t t = 0; t < kVocab; ++t) {
      ASSERT_NEAR(got[t], want[t], 1e-13) << "temperature " << c.temperature << " top_k " << c.top_k
                                          << " top_p " << c.top_p << " token " << t;
    }
  }
}

TEST(Sampler, WeightsAreExpToTwoUlp) {
  // Two tokens: the probability of the second over the first is exp(x) by definition.
  SamplerConfig config{.vocab_count = 2};
  config.params.temperature = 1;
  Sampler sampler = Make(config);
  for (float x = -0.001f; x > -700; x = x * 1.01f - 0.003f) {
    const auto p = Probabilities(sampler, {0, x});
    ASSERT_EQ(p.size(), 2u);
    const double want = std::exp(double{x});
    ASSERT_NEAR(p[1].probability / p[0].probability / want, 1, 6 * 0x1p-53) << x;
  }
  EXPECT_EQ(Probabilities(sampler, {0, -709}).size(), 1u);
}

TEST(Sampler, EqualLogitsGoToTheLowerId) {
  Sampler greedy = Make({.vocab_count = 40});
  std::vector<float> logits(40, -1);
  logits[37] = logits[21] = logits[5] = 2;
  EXPECT_EQ(Choose(greedy, logits), 5);
  logits.assign(40, -0.0f);
  logits[30] = 0.0f;
  EXPECT_EQ(Choose(greedy, logits), 0);

  SamplerConfig config{.vocab_count = 40};
  config.params.temperature = 1;
  config.params.top_k = 3;
  Sampler sampler = Make(config);
  EXPECT_THAT(TokensOf(Probabilities(sampler, logits)), ::testing::ElementsAre(0, 1, 2));
  logits[9] = 1;
  EXPECT_THAT(TokensOf(Probabilities(sampler, logits)), ::testing::ElementsAre(9, 0, 1));
}

TEST(Sampler, TopPZeroKeepsTheMostLikelyToken) {
  SamplerConfig config{.vocab_count = 4};
  config.params.temperature = 1;
  config.params.top_p = 0;
  Sampler sampler = Make(config);
  EXPECT_THAT(TokensOf(Probabilities(sampler, {1, 3, 3, 0})), ::testing::ElementsAre(1));
}

TEST(Sampler, GreedySeesBiasAndPenalties) {
  SamplerConfig config{.vocab_count = 4};
  config.params.logit_bias = {{3, 5}};
  Sampler biased = Make(config);
  EXPECT_EQ(Choose(biased, {4, 3, 2, 1}), 3);

  config = {.vocab_count = 4};
  config.params.presence_penalty = 2;
  Sampler penalised = Make(config);
  EXPECT_EQ(Choose(penalised, {4, 3, 2, 1}), 0);
  penalised.Push(0);
  EXPECT_EQ(Choose(penalised, {4, 3, 2, 1}), 1);
}

TEST(Sampler, RepetitionCountsThePromptAndTheOthersOnlyTheOutput) {
  const std::vector<TokenId> prompt = {0, 0};
  SamplerConfig config{.vocab_count = 3};
  config.params.repetition_penalty = 2;
  Sampler repetition = Make(config);
  ASSERT_TRUE(repetition.SetPrompt(prompt).ok());
  EXPECT_EQ(Choose(repetition, {4, 3, 1}), 1);     // 4 / 2 < 3, once however often it occurred
  EXPECT_EQ(Choose(repetition, {-1, -3, -3}), 0);  // -1 * 2 > -3
  EXPECT_EQ(Choose(repetition, {-2, -3, -5}), 1);  // -2 * 2 < -3

  config = {.vocab_count = 3};
  config.params.frequency_penalty = 1;
  Sampler frequency = Make(config);
  ASSERT_TRUE(frequency.SetPrompt(prompt).ok());
  EXPECT_EQ(Choose(frequency, {4, 2.5f, 1}), 0);
  frequency.Push(0);
  EXPECT_EQ(Choose(frequency, {4, 2.5f, 1}), 0);  // 3
  frequency.Push(0);
  EXPECT_EQ(Choose(frequency, {4, 2.5f, 1}), 1);  // 2
}

TEST(Sampler, NoStopTokenBeforeMinTokens) {
  SamplerConfig config{.vocab_count = 4, .stop_tokens = {1, 2}};
  config.params.min_tokens = 2;
  Sampler sampler = Make(config);
  ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{3, 3, 3}).ok());
  const std::vector<float> logits = {0, 9, 8, -1};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Choose(sampler, logits), 0);
    sampler.Push(0);
  }
  EXPECT_EQ(Choose(sampler, logits), 1);
}

TEST(Sampler, PoppedTokensLeaveNoTrace) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    constexpr uint32_t kVocab = 12;
    const SamplerConfig config = RandomConfig(prng, kVocab);
    const std::vector<TokenId> prompt = {1, 2, 3};
    Sampler used = Make(config);
    ASSERT_TRUE(used.SetPrompt(prompt).ok());
    std::vector<TokenId> kept;
    for (int step = 0; step < 20; ++step) {
      for (uint64_t n = prng.Below(8); n > 0; --n)
        used.Push(static_cast<TokenId>(prng.Below(kVocab)));
      used.PopTo(static_cast<uint32_t>(prompt.size() + kept.size()));
      kept.push_back(static_cast<TokenId>(prng.Below(kVocab)));
      used.Push(kept.back());

      Sampler fresh = Make(config);
      ASSERT_TRUE(fresh.SetPrompt(prompt).ok());
      for (const TokenId t : kept) fresh.Push(t);
      const std::vector<float> logits = ScriptedModel({.vocab_count = kVocab}).Logits(kept);
      ASSERT_EQ(Choose(used, logits), Choose(fresh, logits)) << "seed " << seed;
      const auto got = Probabilities(used, logits);
      const auto want = Probabilities(fresh, logits);
      ASSERT_EQ(TokensOf(got), TokensOf(want));
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].probability, want[i].probability);
    }
  }
}

TEST(Sampler, BadLogitsAreDataLossAndTheSamplerGoesOn) {
  SamplerConfig config{.vocab_count = 50};
  for (const float temperature : {0.0f, 1.0f}) {
    config.params.temperature = temperature;
    Sampler sampler = Make(config);
    ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{1, 2, 3}).ok());
    for (const size_t at : {size_t{0}, size_t{17}, size_t{48}, size_t{49}}) {
      for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity}) {
        std::vector<float> logits(50, 1);
        logits[at] = bad;
        const absl::Status status = sampler.Sample(logits).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("token " + std::to_string(at) + " at position 3"));
        EXPECT_EQ(sampler.Distribution(logits).status().code(), absl::StatusCode::kDataLoss);
      }
    }
    const std::vector<float> all_masked(50, -kInfinity);
    EXPECT_THAT(std::string(sampler.Sample(all_masked).status().message()), HasSubstr("-inf"));
    std::vector<float> one(50, -kInfinity);
    one[33] = -1e30f;
    EXPECT_EQ(Choose(sampler, one), 33);
  }
}

TEST(Sampler, MaskedTokensAreNeverChosen) {
  SamplerConfig config{.vocab_count = 8};
  config.params.temperature = 100;
  config.params.top_k = 6;
  Sampler sampler = Make(config);
  std::vector<float> logits(8, -kInfinity);
  logits[2] = logits[6] = 1;
  EXPECT_THAT(TokensOf(Probabilities(sampler, logits)), ::testing::ElementsAre(2, 6));
}

TEST(Sampler, ExtremeTemperaturesStayDefined) {
  SamplerConfig config{.vocab_count = 4};
  config.params.temperature = std::numeric_limits<float>::denorm_min();
  Sampler cold = Make(config);
  const float huge = std::numeric_limits<float>::max();
  EXPECT_THAT(TokensOf(Probabilities(cold, {-huge, 1, huge, huge})), ::testing::ElementsAre(2, 3));
  config.params.temperature = 100;
  Sampler hot = Make(config);
  EXPECT_EQ(Probabilities(hot, {1, 2, 3, 4}).size(), 4u);
}

// Pearson's statistic of counts against probabilities.
double ChiSquare(std::span<const uint32_t> counts, std::span<const double> probabilities) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * probabilities[i];
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Sampler, SamplesFollowTheDistribution) {
  SamplerConfig config{.vocab_count = 4};
  config.params.temperature = 0.7f;
  const std::vector<float> logits = {0.3f, 1.1f, -0.4f, 0.9f};
  std::vector<uint32_t> over_seeds(4);
  for (uint32_t i = 0; i < 20000; ++i) {
    config.params.seed = i;
    Sampler sampler = Make(config);
    ++over_seeds[static_cast<size_t>(Choose(sampler, logits))];
  }
  config.params.seed = 1;
  Sampler sampler = Make(config);
  std::vector<uint32_t> over_positions(4);
  for (uint32_t i = 0; i < 20000; ++i) {
    sampler.Push(0);
    ++over_positions[static_cast<size_t>(Choose(sampler, logits))];
  }
  const std::vector<double> right = DefinedProbabilities(config.params, logits);
  config.params.temperature = 0.75f;
  const std::vector<double> wrong = DefinedProbabilities(config.params, logits);
  constexpr double kThreshold = 21.1;  // 3 degrees of freedom, exceeded once in 10,000
  EXPECT_LT(ChiSquare(over_seeds, right), kThreshold);
  EXPECT_LT(ChiSquare(over_positions, right), kThreshold);
  EXPECT_GT(ChiSquare(over_seeds, wrong), kThreshold) << "the test could not see an error";
}

TEST(Sampler, ChoiceDependsOnSeedAndPositionOnly) {
  SamplerConfig config{.vocab_count = 1000};
  config.params.temperature = 1;
  config.params.seed = 42;
  const std::vector<float> logits(1000, 0);
  Sampler a = Make(config);
  Sampler b = Make(config);
  ASSERT_TRUE(b.SetPrompt(std::vector<TokenId>{5, 6}).ok());  // the same position, other tokens
  a.Push(1);
  a.Push(2);
  const TokenId first = Choose(a, logits);
  EXPECT_EQ(Choose(a, logits), first);  // a choice uses nothing up
  EXPECT_EQ(Choose(b, logits), first);
  a.Push(first);
  EXPECT_NE(Choose(a, logits), first);
  config.params.seed = 43;
  Sampler c = Make(config);
  ASSERT_TRUE(c.SetPrompt(std::vector<TokenId>{5, 6}).ok());
  EXPECT_NE(Choose(c, logits), first);
}

TEST(Sampler, BitsAreTheSameEverywhere) {
  // A hash over every probability's bits. It may change only with the definition in sampler.h.
  uint64_t hash = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Prng prng(seed);
    const SamplerConfig config = RandomConfig(prng, 64);
    Sampler sampler = Make(config);
    const std::vector<float> logits = ScriptedModel({.vocab_count = 64, .seed = seed}).Logits({});
    for (const TokenProbability& p : Probabilities(sampler, logits)) {
      hash = SplitMix64(hash ^ std::bit_cast<uint64_t>(p.probability));
    }
    hash = SplitMix64(hash ^ static_cast<uint64_t>(Choose(sampler, logits)));
  }
  EXPECT_EQ(hash, 13192817626690625981u);
}

TEST(Sampler, TheLargestLogitsGiveTheChoiceOfTheRow) {
  uint32_t rows_not_needed = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Prng prng(seed);
    const auto vocab = static_cast<uint32_t>(1 + prng.Below(300));
    SamplerConfig config = RandomConfig(prng, vocab);
    if (seed % 4 != 0) {  // nothing that changes logits
      const SamplingParams all = config.params;
      config.params = {.temperature = all.temperature,
                       .top_k = all.top_k,
                       .top_p = all.top_p,
                       .min_p = all.min_p,
                       .seed = all.seed};
    }
    Sampler sampler = Make(config);
    const uint32_t needed = sampler.largest_needed();
    const ScriptedModel model({.vocab_count = vocab, .seed = seed, .logit_step = 0.25f});
    for (int position = 0; position < 8 && needed != 0; ++position) {
      const std::vector<float> logits = model.Logits(sampler.history().tokens());
      const TokenId token = Choose(sampler, logits);
      ASSERT_EQ(sampler.SampleLargest(LargestOf(logits, needed)), token) << "seed " << seed;
      sampler.Push(token);
      ++rows_not_needed;
    }
  }
  EXPECT_GT(rows_not_needed, 1000u);
}

TEST(Sampler, NeedsTheRowWhenLogitsChangeOrAllOfThemCount) {
  const auto needed = [](const SamplingParams& params) {
    return Make({.params = params, .vocab_count = 100}).largest_needed();
  };
  EXPECT_EQ(needed({}), 1u);
  EXPECT_EQ(needed({.temperature = 1, .top_k = 40, .top_p = 0.9f, .min_p = 0.1f}), 40u);
  EXPECT_EQ(needed({.temperature = 1, .top_k = 100}), 100u);
  EXPECT_EQ(needed({.temperature = 1}), 0u);
  EXPECT_EQ(needed({.temperature = 1, .top_p = 0.9f}), 0u);
  EXPECT_EQ(needed({.repetition_penalty = 1.1f}), 0u);
  EXPECT_EQ(needed({.presence_penalty = 0.5f}), 0u);
  EXPECT_EQ(needed({.logit_bias = {{3, 1.0f}}}), 0u);
}

TEST(Sampler, CreateRefusesWhatItCannotServe) {
  EXPECT_FALSE(Sampler::Create({.vocab_count = 0}).ok());
  EXPECT_FALSE(Sampler::Create({.vocab_count = 1u << 31}).ok());
  EXPECT_FALSE(Sampler::Create({.vocab_count = 4, .stop_tokens = {4}}).ok());
  EXPECT_FALSE(Sampler::Create({.vocab_count = 4, .stop_tokens = {-1}}).ok());
  SamplingParams params;
  params.top_p = 2;
  EXPECT_FALSE(Sampler::Create({.params = params, .vocab_count = 4}).ok());
  Sampler sampler = Make({.vocab_count = 4});
  const absl::Status status = sampler.SetPrompt(std::vector<TokenId>{0, 4});
  EXPECT_EQ(status.message(), "prompt position 1 is token 4, accepted is 0 to 3");
}

}  // namespace
}  // namespace hearth
