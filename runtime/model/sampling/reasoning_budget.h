// Bounds how long a model may reason before it answers, and keeps a grammar for the answer out of
// the reasoning. An output has three parts: what comes before the reasoning (nothing but its start
// token), the reasoning, and the answer after its end token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/sampling/token_constraint.h"

namespace hearth {

struct ReasoningBudgetOptions {
  uint32_t vocab_count = 0;
  TokenId end_token = 0;  // </think>
  // <think>. Where the prompt does not end inside the reasoning, an output that begins with it
  // reasons; every other is the answer from its first token on.
  std::optional<TokenId> start_token;
  bool starts_inside = false;  // the prompt has opened the reasoning
  // Tokens between start and end; then only the end token is allowed. None: no bound.
  std::optional<uint32_t> tokens_max;
  // Not allowed while reasoning, so that an answer comes in any case.
  std::vector<TokenId> forbidden_inside;
};

class ReasoningBudget final : public TokenConstraint {
 public:
  // `inner`, which may be null, sees the answer only: its first token is the first of the answer.
  // InvalidArgument for tokens outside the vocabulary, and when the end token is forbidden.
  static absl::StatusOr<std::unique_ptr<ReasoningBudget>> Create(
      ReasoningBudgetOptions options, std::shared_ptr<TokenConstraint> inner);

  std::span<const uint64_t> Allowed() override;
  void Push(TokenId token) override;
  void PopTo(uint32_t count) override;

  bool inside() const;  // the next token is one of the reasoning, or its end

 private:
  ReasoningBudget(ReasoningBudgetOptions options, std::shared_ptr<TokenConstraint> inner);
  // The next token may be the start token: nothing was pushed, and the prompt has not opened it.
  bool may_start() const {
    return count_ == 0 && !options_.starts_inside && options_.start_token.has_value();
  }

  ReasoningBudgetOptions options_;
  std::shared_ptr<TokenConstraint> inner_;
  uint32_t count_ = 0;  // tokens pushed
  // Of the tokens pushed, how many are before the first of the reasoning and of the answer.
  std::optional<uint32_t> reasoning_begin_;
  std::optional<uint32_t> answer_begin_;
  std::vector<uint64_t> only_end_;     // the end token alone
  std::vector<uint64_t> inside_mask_;  // all but those forbidden; empty: none is
  std::vector<uint64_t> start_mask_;   // what the answer may begin with, and the start token
};

}  // namespace hearth
