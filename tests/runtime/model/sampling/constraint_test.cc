// What may not come next never comes, whatever else a request asks for, in windows as in single
// rows; and a bound on reasoning keeps a grammar out of it.
#include "runtime/model/sampling/token_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/model/sampling/acceptance.h"
#include "runtime/model/sampling/reasoning_budget.h"
#include "runtime/model/sampling/sampler.h"
#include "runtime/model/sampling/weighing.h"
#include "tests/runtime/model/sampling/scripted_model.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kVocab = 80;  // of more than one word, the last one not full
constexpr TokenId kStop = 79;

std::vector<uint64_t> Mask(const std::vector<TokenId>& tokens) {
  std::vector<uint64_t> mask(2);
  for (const TokenId t : tokens) mask[static_cast<size_t>(t) / 64] |= uint64_t{1} << (t % 64);
  return mask;
}
std::vector<TokenId> TokensOf(std::span<const uint64_t> mask) {
  std::vector<TokenId> tokens;
  for (uint32_t t = 0; t < kVocab; ++t) {
    if ((mask[t / 64] >> (t % 64) & 1) != 0) tokens.push_back(static_cast<TokenId>(t));
  }
  return tokens;
}

// Token i must leave the remainder i % 7 when divided by 7; every fifth is free. Checks what it is
// told.
class Remainders final : public TokenConstraint {
 public:
  std::span<const uint64_t> Allowed() override {
    mask_ = {0, 0};
    if (free()) return {};
    for (uint32_t t = 0; t < kVocab; ++t) {
      if (Fits(static_cast<TokenId>(t))) mask_[t / 64] |= uint64_t{1} << (t % 64);
    }
    return mask_;
  }
  void Push(TokenId token) override {
    EXPECT_TRUE(free() || Fits(token)) << token << " at " << pushed_.size();
    pushed_.push_back(token);
  }
  void PopTo(uint32_t count) override {
    ASSERT_LE(count, pushed_.size());
    pushed_.resize(count);
  }
  const std::vector<TokenId>& pushed() const { return pushed_; }

 private:
  bool free() const { return pushed_.size() % 5 == 4; }
  bool Fits(TokenId token) const { return static_cast<size_t>(token) % 7 == pushed_.size() % 7; }
  std::vector<TokenId> pushed_;
  std::vector<uint64_t> mask_;
};

Sampler Make(const SamplingParams& params, std::shared_ptr<TokenConstraint> constraint) {
  absl::StatusOr<Sampler> sampler = Sampler::Create({.params = params,
                                                     .vocab_count = kVocab,
                                                     .stop_tokens = {kStop},
                                                     .token_count_reserve = 100,
                                                     .constraint = std::move(constraint)});
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

std::vector<SamplingParams> AllKinds() {
  return {SamplingParams{},
          SamplingParams{.temperature = 1, .seed = 1},
          SamplingParams{.temperature = 0.7f, .top_k = 5, .seed = 2},
          SamplingParams{.temperature = 1, .top_p = 0.5f, .seed = 3},
          SamplingParams{.temperature = 2, .min_p = 0.2f, .seed = 4},
          SamplingParams{.temperature = 1, .repetition_penalty = 1.5f, .frequency_penalty = 2},
          SamplingParams{.logit_bias = {{.token = 3, .bias = 100}, {.token = 70, .bias = 100}}}};
}

TEST(TokenConstraintTest, EveryChoiceIsAllowedAndWindowsChooseAsRowsDo) {
  const ScriptedModel model({.vocab_count = kVocab, .seed = 9});
  for (const SamplingParams& params : AllKinds()) {
    const auto plain_constraint = std::make_shared<Remainders>();
    Sampler plain = Make(params, plain_constraint);
    ASSERT_TRUE(plain.SetPrompt(std::vector<TokenId>{1, 2}).ok());
    for (int i = 0; i < 60; ++i) {
      const absl::StatusOr<TokenId> token = plain.Sample(model.Logits(plain.history().tokens()));
      ASSERT_TRUE(token.ok()) << token.status();
      plain.Push(*token);
    }
    const std::vector<TokenId> want = plain_constraint->pushed();
    const auto constraint = std::make_shared<Remainders>();
    Sampler sampler = Make(params, constraint);
    EXPECT_EQ(sampler.largest_needed(), 0u);
    ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{1, 2}).ok());
    Prng prng(5);
    std::vector<TokenId> emitted(5);
    while (constraint->pushed().size() < 60) {
      // Drafts that are right three times of four; a wrong one is often not even allowed.
      const size_t at = constraint->pushed().size();
      std::vector<TokenId> drafts;
      std::vector<std::vector<float>> rows;
      std::vector<TokenId> before(sampler.history().tokens().begin(),
                                  sampler.history().tokens().end());
      for (size_t i = 0; i < 4; ++i) {
        rows.push_back(model.Logits(before));
        const bool right = prng.Below(4) != 0 && at + i < want.size();
        drafts.push_back(right ? want[at + i] : static_cast<TokenId>(prng.Below(kVocab)));
        before.push_back(drafts.back());
      }
      rows.push_back(model.Logits(before));
      const std::vector<std::span<const float>> logits(rows.begin(), rows.end());
      const auto accepted = AcceptWindow(
          {.logits = logits, .drafts = drafts, .token_budget = 60 - static_cast<uint32_t>(at)},
          sampler, emitted);
      ASSERT_TRUE(accepted.ok()) << accepted.status();
      if (accepted->token_count > 1 && prng.Below(3) == 0) {
        CutAcceptance(*accepted, accepted->token_count - 1, sampler);
      }
      ASSERT_EQ(sampler.history().output_count(), constraint->pushed().size());
    }
    EXPECT_EQ(constraint->pushed(), want);
    ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{7}).ok());
    EXPECT_TRUE(constraint->pushed().empty()) << "another prompt begins anew";
  }
}

// Allows what it is told to.
class Fixed final : public TokenConstraint {
 public:
  explicit Fixed(const std::vector<TokenId>& tokens) : mask_(Mask(tokens)) {}
  std::span<const uint64_t> Allowed() override { return mask_; }
  void Push(TokenId) override { ++count_; }
  void PopTo(uint32_t count) override { count_ = count; }
  uint32_t count() const { return count_; }

 private:
  std::vector<uint64_t> mask_;
  uint32_t count_ = 0;
};

TEST(TokenConstraintTest, MinTokensGivesWayWhereOnlyAStopIsAllowed) {
  const std::vector<float> logits(kVocab, 1.0f);
  Sampler sampler = Make({.min_tokens = 50}, std::make_shared<Fixed>(std::vector<TokenId>{kStop}));
  ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{1}).ok());
  EXPECT_EQ(*sampler.Sample(logits), kStop);
  Sampler other = Make({.min_tokens = 50}, std::make_shared<Fixed>(std::vector<TokenId>{kStop, 4}));
  ASSERT_TRUE(other.SetPrompt(std::vector<TokenId>{1}).ok());
  EXPECT_EQ(*other.Sample(logits), 4);
}

TEST(TokenConstraintTest, NothingAllowedIsAnErrorAndLeavesEverythingAsItWas) {
  const auto nothing = std::make_shared<Fixed>(std::vector<TokenId>{});
  Sampler sampler = Make({}, nothing);
  ASSERT_TRUE(sampler.SetPrompt(std::vector<TokenId>{1}).ok());
  const std::vector<float> row(kVocab, 1.0f);
  const std::vector<std::span<const float>> logits = {row};
  std::vector<TokenId> emitted(1);
  EXPECT_EQ(AcceptWindow({.logits = logits, .token_budget = 5}, sampler, emitted).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(sampler.history().output_count(), 0u);
  EXPECT_EQ(nothing->count(), 0u);
}

constexpr TokenId kThink = 70, kEndThink = 71;

std::unique_ptr<ReasoningBudget> Budget(ReasoningBudgetOptions options,
                                        std::shared_ptr<TokenConstraint> inner = nullptr) {
  options.vocab_count = kVocab;
  options.end_token = kEndThink;
  auto made = ReasoningBudget::Create(std::move(options), std::move(inner));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(ReasoningBudget, AfterTheBudgetOnlyTheEndIsAllowed) {
  const auto budget = Budget({.starts_inside = true, .tokens_max = 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(budget->Allowed().empty()) << i;
    budget->Push(5);
  }
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(kEndThink));
  budget->Push(kEndThink);
  EXPECT_FALSE(budget->inside());
  EXPECT_TRUE(budget->Allowed().empty());
  budget->PopTo(2);
  EXPECT_TRUE(budget->inside());
  EXPECT_TRUE(budget->Allowed().empty());
  budget->Push(kEndThink);
  for (int i = 0; i < 9; ++i) budget->Push(6);
  EXPECT_TRUE(budget->Allowed().empty()) << "the answer has no bound";
}

TEST(ReasoningBudget, NoneAtAllEndsAtOnce) {
  const auto budget = Budget({.starts_inside = true, .tokens_max = 0});
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(kEndThink));
}

TEST(ReasoningBudget, CountsFromTheStartTokenWhereTheOutputOpensIt) {
  const auto budget = Budget({.start_token = kThink, .tokens_max = 1});
  EXPECT_TRUE(budget->Allowed().empty());
  budget->Push(kThink);
  EXPECT_TRUE(budget->Allowed().empty());
  budget->Push(9);
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(kEndThink));
  // An output that does not begin so is all answer.
  budget->PopTo(0);
  for (int i = 0; i < 5; ++i) {
    budget->Push(9);
    EXPECT_FALSE(budget->inside());
    EXPECT_TRUE(budget->Allowed().empty());
  }
}

TEST(ReasoningBudget, AGrammarSeesTheAnswerAlone) {
  const auto inner = std::make_shared<Fixed>(std::vector<TokenId>{1, 2, 3});
  const auto budget = Budget({.starts_inside = true, .forbidden_inside = {kStop}}, inner);
  std::vector<TokenId> inside = TokensOf(budget->Allowed());
  EXPECT_EQ(inside.size(), kVocab - 1);
  EXPECT_EQ(std::count(inside.begin(), inside.end(), kStop), 0);
  budget->Push(50);
  budget->Push(kEndThink);
  EXPECT_EQ(inner->count(), 0u);
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(1, 2, 3));
  budget->Push(1);
  budget->Push(2);
  EXPECT_EQ(inner->count(), 2u);
  budget->PopTo(3);
  EXPECT_EQ(inner->count(), 1u);
  budget->PopTo(1);
  EXPECT_EQ(inner->count(), 0u);
  EXPECT_TRUE(budget->inside());
}

TEST(ReasoningBudget, AnAnswerMayBeginWhereTheReasoningCould) {
  const auto inner = std::make_shared<Fixed>(std::vector<TokenId>{1, 2});
  const auto budget = Budget({.start_token = kThink}, inner);
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(1, 2, kThink));
  budget->Push(1);
  EXPECT_EQ(inner->count(), 1u);
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(1, 2)) << "too late to reason";
  budget->PopTo(0);
  EXPECT_EQ(inner->count(), 0u);
  EXPECT_THAT(TokensOf(budget->Allowed()), ElementsAre(1, 2, kThink));
  budget->Push(kThink);
  EXPECT_TRUE(budget->inside());
  budget->PopTo(0);
  EXPECT_FALSE(budget->inside());
}

TEST(ReasoningBudget, RefusesTokensThatAreNone) {
  const auto refused = [](const ReasoningBudgetOptions& options) {
    return ReasoningBudget::Create(options, nullptr).status().code();
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(refused({.vocab_count = kVocab, .end_token = 80}), kInvalid);
  EXPECT_EQ(refused({.vocab_count = kVocab, .end_token = -1}), kInvalid);
  EXPECT_EQ(refused({.vocab_count = kVocab, .end_token = 1, .start_token = 80}), kInvalid);
  EXPECT_EQ(refused({.vocab_count = kVocab, .end_token = 1, .forbidden_inside = {1}}), kInvalid);
  EXPECT_EQ(refused({.vocab_count = kVocab, .end_token = 1, .forbidden_inside = {99}}), kInvalid);
}

}  // namespace
}  // namespace hearth
