// Speculative decoding by windows gives what decoding one row at a time gives: same tokens, same
// reason.
#include "runtime/model/sampling/acceptance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/model/sampling/stop_strings.h"
#include "tests/runtime/model/sampling/scripted_model.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

Sampler Make(SamplerConfig config) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(std::move(config));
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

struct Output {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Output&) const = default;
};

struct Request {
  SamplerConfig config;
  std::vector<TokenId> prompt = {1, 2};
  uint32_t token_max = 40;
};

// One token at a time, without acceptance.h: the definition that windows must reproduce.
Output DecodePlainly(const ScriptedModel& model, const Request& request) {
  Sampler sampler = Make(request.config);
  EXPECT_TRUE(sampler.SetPrompt(request.prompt).ok());
  Output output;
  while (output.finish == FinishReason::kNone) {
    const absl::StatusOr<TokenId> token = sampler.Sample(model.Logits(sampler.history().tokens()));
    EXPECT_TRUE(token.ok());
    output.tokens.push_back(*token);
    sampler.Push(*token);
    if (output.tokens.size() == request.token_max) output.finish = FinishReason::kLength;
    const auto& stops = request.config.stop_tokens;
    if (std::find(stops.begin(), stops.end(), *token) != stops.end()) {
      output.finish = FinishReason::kStop;
    }
  }
  return output;
}

// Where drafts come from: the tokens of `truth` with the given chance, else random ones.
class Drafter {
 public:
  Drafter(std::vector<TokenId> truth, double hit_chance, uint32_t vocab_count, uint64_t seed)
      : truth_(std::move(truth)), hit_chance_(hit_chance), vocab_count_(vocab_count), prng_(seed) {}
  TokenId Draft(size_t index) {
    const bool hit = prng_.Uniform() < hit_chance_ && index < truth_.size();
    return hit ? truth_[index] : static_cast<TokenId>(prng_.Below(vocab_count_));
  }

 private:
  std::vector<TokenId> truth_;
  double hit_chance_;
  uint32_t vocab_count_;
  Prng prng_;
};

struct WindowRun {
  Output output;
  uint32_t window_count = 0;
  uint32_t committed_count = 0;
};

// The logits of every row of a window whose row 0 is the last of `before`.
std::vector<std::vector<float>> RowLogits(const ScriptedModel& model, std::vector<TokenId> before,
                                          std::span<const TokenId> drafts) {
  std::vector<std::vector<float>> rows = {model.Logits(before)};
  for (const TokenId draft : drafts) {
    before.push_back(draft);
    rows.push_back(model.Logits(before));
  }
  return rows;
}

WindowRun DecodeByWindows(const ScriptedModel& model, const Request& request, uint32_t row_count,
                          Drafter drafter) {
  Sampler sampler = Make(request.config);
  EXPECT_TRUE(sampler.SetPrompt(request.prompt).ok());
  WindowRun run;
  std::vector<TokenId> all = request.prompt;
  std::vector<TokenId> emitted(row_count);
  while (run.output.finish == FinishReason::kNone) {
    std::vector<TokenId> drafts;
    for (uint32_t i = 0; i + 1 < row_count; ++i) {
      drafts.push_back(drafter.Draft(run.output.tokens.size() + i));
    }
    const std::vector<std::vector<float>> rows = RowLogits(model, all, drafts);
    const std::vector<std::span<const float>> spans(rows.begin(), rows.end());
    const uint32_t budget = request.token_max - static_cast<uint32_t>(run.output.tokens.size());
    WindowRows window{.logits = spans, .drafts = drafts, .token_budget = budget};
    // Where the largest logits of a row suffice, every other window has no more.
    std::vector<std::vector<TopLogit>> tops;
    const uint32_t needed = run.window_count % 2 == 0 ? 0 : sampler.largest_needed();
    for (size_t r = 0; r < rows.size() && needed != 0; ++r) {
      tops.push_back(LargestOf(rows[r], needed));
    }
    const std::vector<std::span<const TopLogit>> top_spans(tops.begin(), tops.end());
    window.largest = top_spans;
    if (needed != 0) window.logits = {};
    const absl::StatusOr<Acceptance> accepted = AcceptWindow(window, sampler, emitted);
    EXPECT_TRUE(accepted.ok()) << accepted.status();
    if (!accepted.ok()) return run;
    for (uint32_t i = 0; i < accepted->token_count; ++i) {
      run.output.tokens.push_back(emitted[i]);
      all.push_back(emitted[i]);
    }
    // The rows kept hold the tokens of the output up to, and without, the last one emitted.
    EXPECT_EQ(accepted->commit_row_count, accepted->token_count);
    for (uint32_t i = 1; i < accepted->commit_row_count; ++i)
      EXPECT_EQ(drafts[i - 1], emitted[i - 1]);
    EXPECT_TRUE(std::ranges::equal(sampler.history().tokens(), all));
    run.output.finish = accepted->finish;
    run.committed_count += accepted->commit_row_count;
    ++run.window_count;
  }
  return run;
}

SamplingParams RandomParams(Prng& prng) {
  SamplingParams p;
  const uint64_t kind = prng.Below(4);
  p.temperature = kind == 0 ? 0 : static_cast<float>(0.3 + prng.Uniform());
  if (kind == 2) p.top_k = 5;
  if (kind == 3) p.top_p = 0.8f;
  if (prng.Below(2) == 0) p.repetition_penalty = 1.3f;
  if (prng.Below(2) == 0) p.frequency_penalty = 1;
  if (prng.Below(2) == 0) p.presence_penalty = 1;
  if (prng.Below(2) == 0) p.logit_bias = {{3, 1.5f}, {0, 1}};
  p.min_tokens = static_cast<uint32_t>(prng.Below(12));
  p.seed = prng.Next();
  return p;
}

TEST(AcceptWindow, OutputEqualsPlainDecodingForEveryWindowLength) {
  uint32_t stopped_count = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    const ScriptedModel model({.vocab_count = 24, .seed = seed, .logit_step = 0.25f});
    const Request request{
        .config = {.params = RandomParams(prng), .vocab_count = 24, .stop_tokens = {0, 23}},
        .token_max = static_cast<uint32_t>(1 + prng.Below(40))};
    const Output want = DecodePlainly(model, request);
    stopped_count += want.finish == FinishReason::kStop ? 1 : 0;
    for (uint32_t rows = 1; rows <= 8; ++rows) {
      for (const double hit_chance : {0.0, 0.7, 1.0}) {
        const WindowRun got = DecodeByWindows(model, request, rows,
                                              Drafter(want.tokens, hit_chance, 24, seed + rows));
        ASSERT_EQ(got.output, want)
            << "seed " << seed << " rows " << rows << " hits " << hit_chance;
        ASSERT_EQ(got.committed_count, want.tokens.size());
        if (hit_chance == 1.0) {  // every draft right: no row is wasted
          ASSERT_EQ(got.window_count, (want.tokens.size() + rows - 1) / rows);
        }
      }
    }
  }
  EXPECT_GT(stopped_count, 20u);
  EXPECT_LT(stopped_count, 180u);
}

TEST(AcceptWindow, FiftyRepeatsAreIdentical) {
  Prng prng(9);
  SamplingParams params = RandomParams(prng);
  params.temperature = 0.8f;
  params.frequency_penalty = 1;
  const ScriptedModel model({.vocab_count = 16, .seed = 77});
  const Request request{.config = {.params = params, .vocab_count = 16}};
  const Output want = DecodePlainly(model, request);
  for (uint32_t repeat = 0; repeat < 50; ++repeat) {
    const WindowRun got =
        DecodeByWindows(model, request, 1 + repeat % 8, Drafter(want.tokens, 0.6, 16, repeat));
    ASSERT_EQ(got.output, want) << "repeat " << repeat;
  }
}

// A window of fixed logits: row j prefers token order[j].
struct FixedWindow {
  explicit FixedWindow(std::vector<TokenId> choices, uint32_t vocab_count = 10) {
    for (const TokenId t : choices) {
      rows.emplace_back(vocab_count, 0.0f);
      rows.back()[static_cast<size_t>(t)] = 5;
    }
    logits.assign(rows.begin(), rows.end());
    emitted.resize(rows.size());
  }
  Acceptance Accept(Sampler& sampler, const std::vector<TokenId>& drafts, uint32_t budget = 100) {
    const absl::StatusOr<Acceptance> a = AcceptWindow(
        {.logits = logits, .drafts = drafts, .token_budget = budget}, sampler, emitted);
    EXPECT_TRUE(a.ok()) << a.status();
    return a.value_or(Acceptance{});
  }
  std::vector<TokenId> Emitted(const Acceptance& a) const {
    return {emitted.begin(), emitted.begin() + a.token_count};
  }
  std::vector<std::vector<float>> rows;
  std::vector<std::span<const float>> logits;
  std::vector<TokenId> emitted;
};

TEST(AcceptWindow, KeepsTheAgreeingPrefixAndTheModelsOwnNextToken) {
  Sampler sampler = Make({.vocab_count = 10});
  FixedWindow window({1, 2, 3, 4});
  Acceptance a = window.Accept(sampler, {1, 2, 9});
  EXPECT_THAT(window.Emitted(a), ElementsAre(1, 2, 3));
  EXPECT_EQ(a.commit_row_count, 3u);
  a = window.Accept(sampler, {1, 2, 3});
  EXPECT_THAT(window.Emitted(a), ElementsAre(1, 2, 3, 4));
  a = window.Accept(sampler, {9, 2, 3});  // agreement after a refusal counts for nothing
  EXPECT_THAT(window.Emitted(a), ElementsAre(1));
}

TEST(AcceptWindow, StopTokenEndsTheWindowAtEveryRow) {
  for (uint32_t at = 0; at < 4; ++at) {
    std::vector<TokenId> choices = {1, 2, 3, 4};
    choices[at] = 7;
    std::vector<TokenId> drafts(choices.begin(), choices.end() - 1);  // all drafts agree
    Sampler sampler = Make({.vocab_count = 10, .stop_tokens = {7}});
    FixedWindow window(choices);
    const Acceptance a = window.Accept(sampler, drafts);
    EXPECT_EQ(a.finish, FinishReason::kStop);
    EXPECT_EQ(a.token_count, at + 1);
    EXPECT_EQ(a.commit_row_count, at + 1);  // the row of the stop token itself is at + 1: not kept
    EXPECT_EQ(sampler.history().output_count(), at + 1);
    EXPECT_EQ(sampler.history().tokens().back(), 7);
  }
}

TEST(AcceptWindow, StopTokenThatOnlyTheDraftHasIsNotTrusted) {
  Sampler sampler = Make({.vocab_count = 10, .stop_tokens = {7}});
  FixedWindow window({1, 2, 3});
  const Acceptance a = window.Accept(sampler, {1, 7});
  EXPECT_THAT(window.Emitted(a), ElementsAre(1, 2));
  EXPECT_EQ(a.finish, FinishReason::kNone);
}

TEST(AcceptWindow, BudgetEndsTheWindowAtEveryRow) {
  for (uint32_t budget = 0; budget <= 4; ++budget) {
    Sampler sampler = Make({.vocab_count = 10});
    FixedWindow window({1, 2, 3, 4});
    const Acceptance a = window.Accept(sampler, {1, 2, 3}, budget);
    EXPECT_EQ(a.token_count, budget);
    EXPECT_EQ(a.commit_row_count, budget);
    EXPECT_EQ(a.finish, FinishReason::kLength);
    EXPECT_EQ(sampler.history().output_count(), budget);
  }
  Sampler sampler = Make({.vocab_count = 10, .stop_tokens = {2}});
  FixedWindow window({1, 2, 3, 4});
  EXPECT_EQ(window.Accept(sampler, {1, 2, 3}, 2).finish, FinishReason::kStop);
}

TEST(AcceptWindow, PenaltiesSeeTheTokensOfTheWindow) {
  // Every row prefers token 1; once it is in the output, its penalty makes 2 the choice, then 3.
  SamplerConfig config{.vocab_count = 4};
  config.params.presence_penalty = 2;
  Sampler sampler = Make(config);
  const std::vector<float> row = {0, 3, 2.5f, 2};
  const std::vector<std::span<const float>> logits(3, row);
  const std::vector<TokenId> drafts = {1, 2};
  std::vector<TokenId> emitted(3);
  const auto a =
      AcceptWindow({.logits = logits, .drafts = drafts, .token_budget = 9}, sampler, emitted);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->token_count, 3u);
  EXPECT_THAT(emitted, ElementsAre(1, 2, 3));
}

TEST(AcceptWindow, MinTokensEndsInsideTheWindow) {
  SamplerConfig config{.vocab_count = 10, .stop_tokens = {7}};
  config.params.min_tokens = 2;
  Sampler sampler = Make(config);
  FixedWindow window({7, 7, 7, 7});
  const Acceptance a = window.Accept(sampler, {0, 0, 7});
  EXPECT_THAT(window.Emitted(a), ElementsAre(0, 0, 7));
  EXPECT_EQ(a.finish, FinishReason::kStop);
}

TEST(AcceptWindow, BadLogitsOfALaterRowLeaveTheSamplerAsItWas) {
  SamplerConfig config{.vocab_count = 10};
  config.params.frequency_penalty = 1;
  Sampler sampler = Make(config);
  ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{4}).ok());
  FixedWindow window({1, 2, 3});
  window.rows[2][5] = std::nanf("");
  const std::vector<TokenId> drafts = {1, 2};
  const auto a = AcceptWindow({.logits = window.logits, .drafts = drafts, .token_budget = 9},
                              sampler, window.emitted);
  EXPECT_EQ(a.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(a.status().message()), ::testing::HasSubstr("token 5 at position 3"));
  EXPECT_THAT(sampler.history().tokens(), ElementsAre(4));
  EXPECT_THAT(sampler.history().distinct_output_tokens(), ::testing::IsEmpty());
}

TEST(AcceptWindow, BadLogitsOfARowThatIsNotReachedAreIgnored) {
  Sampler sampler = Make({.vocab_count = 10});
  FixedWindow window({1, 2, 3});
  window.rows[2][5] = std::nanf("");
  EXPECT_THAT(window.Emitted(window.Accept(sampler, {1, 9})), ElementsAre(1, 2));
}

TEST(CutAcceptance, StopStringInsideAWindowLeavesWhatPlainDecodingLeaves) {
  // Token t is the letter 'a' + t; the stop string "cd" is complete at each offset of a window in
  // turn.
  for (uint32_t lead = 0; lead < 3; ++lead) {
    std::vector<TokenId> choices(6, 1);
    std::fill_n(choices.begin(), lead, 0);
    choices[lead] = 2;
    choices[lead + 1] = 3;
    SamplerConfig config{.vocab_count = 10};
    config.params.seed = 1;
    Sampler sampler = Make(config);
    FixedWindow window(choices);
    const Acceptance a =
        window.Accept(sampler, std::vector<TokenId>(choices.begin(), choices.end() - 1));
    ASSERT_EQ(a.token_count, 6u);
    auto matcher = StopStringMatcher::Create(std::vector<std::string>{"cd"});
    ASSERT_TRUE(matcher.ok());
    std::string text;
    uint32_t used = 0;
    while (!matcher->stopped()) {
      matcher->Push(std::string(1, static_cast<char>('a' + window.emitted[used++])), text);
    }
    const Acceptance cut = CutAcceptance(a, used, sampler);
    EXPECT_EQ(text, std::string(lead, 'a'));
    EXPECT_EQ(cut.token_count, lead + 2);
    EXPECT_EQ(cut.commit_row_count, lead + 2);
    EXPECT_EQ(cut.finish, FinishReason::kStop);
    EXPECT_EQ(sampler.history().output_count(), lead + 2);
  }
}

// Two tokens of a four-token vocabulary under temperature 0.7, decoded 20,000 times with seed =
// run.
constexpr uint32_t kRunCount = 20000;
enum class DraftKind { kNone, kMostLikely, kLeastLikely };

std::vector<double> JointCounts(const ScriptedModel& model, DraftKind kind, uint32_t* accepted) {
  std::vector<double> counts(16);
  for (uint32_t run = 0; run < kRunCount; ++run) {
    SamplerConfig config{.vocab_count = 4};
    config.params.temperature = 0.7f;
    config.params.seed = run;
    Sampler sampler = Make(config);
    std::vector<TokenId> all;
    while (all.size() < 2) {
      std::vector<TokenId> drafts;
      std::vector<TokenId> before = all;
      for (int i = 0; i < 3 && kind != DraftKind::kNone; ++i) {
        const std::vector<float> x = model.Logits(before);
        const auto at = kind == DraftKind::kMostLikely ? std::ranges::max_element(x)
                                                       : std::ranges::min_element(x);
        drafts.push_back(static_cast<TokenId>(at - x.begin()));
        before.push_back(drafts.back());
      }
      const std::vector<std::vector<float>> rows = RowLogits(model, all, drafts);
      const std::vector<std::span<const float>> spans(rows.begin(), rows.end());
      std::vector<TokenId> emitted(rows.size());
      const auto a =
          AcceptWindow({.logits = spans, .drafts = drafts, .token_budget = 100}, sampler, emitted);
      EXPECT_TRUE(a.ok());
      if (all.empty() && a->token_count > 1) ++*accepted;
      all.insert(all.end(), emitted.begin(), emitted.begin() + a->token_count);
    }
    ++counts[static_cast<size_t>(all[0] * 4 + all[1])];
  }
  return counts;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(x / temperature));
  for (double& x : p) x /= sum;
  return p;
}

double JointChiSquare(const std::vector<double>& counts, const ScriptedModel& model,
                      double temperature) {
  const std::vector<double> first = Softmax(model.Logits({}), temperature);
  double sum = 0;
  for (TokenId a = 0; a < 4; ++a) {
    const std::vector<double> second = Softmax(model.Logits(std::vector<TokenId>{a}), temperature);
    for (TokenId b = 0; b < 4; ++b) {
      const double expected =
          kRunCount * first[static_cast<size_t>(a)] * second[static_cast<size_t>(b)];
      const double got = counts[static_cast<size_t>(a * 4 + b)];
      sum += (got - expected) * (got - expected) / expected;
    }
  }
  return sum;
}

TEST(AcceptWindow, SamplesFollowTheModelsDistributionWithGoodAndBadDrafts) {
  const ScriptedModel model({.vocab_count = 4, .seed = 11, .context_tokens = 1});
  constexpr double kThreshold = 44.3;  // 15 degrees of freedom, exceeded once in 10,000
  uint32_t accepted_none = 0;
  const std::vector<double> plain = JointCounts(model, DraftKind::kNone, &accepted_none);
  EXPECT_LT(JointChiSquare(plain, model, 0.7), kThreshold);
  EXPECT_GT(JointChiSquare(plain, model, 0.75), kThreshold) << "the test could not see an error";
  EXPECT_EQ(accepted_none, 0u);
  const std::vector<double> p = Softmax(model.Logits({}), 0.7);
  for (const DraftKind kind : {DraftKind::kMostLikely, DraftKind::kLeastLikely}) {
    uint32_t accepted = 0;
    const std::vector<double> counts = JointCounts(model, kind, &accepted);
    EXPECT_LT(JointChiSquare(counts, model, 0.7), kThreshold);
    EXPECT_EQ(counts, plain);  // not only the same law: the same tokens
    // The first draft d is kept with probability p(d), as in rejection sampling; 5 standard
    // deviations.
    const double want = kind == DraftKind::kMostLikely ? *std::ranges::max_element(p)
                                                       : *std::ranges::min_element(p);
    EXPECT_NEAR(accepted / double{kRunCount}, want, 5 * std::sqrt(want * (1 - want) / kRunCount));
  }
}

}  // namespace
}  // namespace hearth
