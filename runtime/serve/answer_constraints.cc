#include "runtime/serve/answer_constraints.h"

#include <utility>

#include "absl/status/status.h"

#include "runtime/base/status.h"
#include "runtime/model/sampling/reasoning_budget.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<AnswerConstraints>> AnswerConstraints::Create(
    const Tokenizer& tokenizer, std::vector<TokenId> stop_tokens, uint32_t vocab_count) {
  std::unique_ptr<AnswerConstraints> made(new AnswerConstraints);
  HEARTH_ASSIGN_OR_RETURN(
      made->grammars_,
      GrammarStore::Create(tokenizer, {.stop_tokens = stop_tokens, .vocab_count = vocab_count}));
  const std::optional<TokenId> start = tokenizer.FindToken("<think>");
  const std::optional<TokenId> end = tokenizer.FindToken("</think>");
  if (start && end) made->reasoning_ = ReasoningTokens{.start = *start, .end = *end};
  made->stop_tokens_ = std::move(stop_tokens);
  made->vocab_count_ = vocab_count;
  return made;
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> AnswerConstraints::MakeForm(
    const ConstraintWish& wish) const {
  switch (wish.form) {
    case ConstraintWish::Form::kFree:
      return nullptr;
    case ConstraintWish::Form::kJsonObject:
      return grammars_->ForAnyObject();
    case ConstraintWish::Form::kJsonSchema:
      return grammars_->ForSchema(wish.schema_json);
    case ConstraintWish::Form::kToolCall:
      break;
  }
  std::vector<ToolSignature> tools;
  tools.reserve(wish.tools.size());
  for (const ToolShape& tool : wish.tools) {
    tools.push_back({.name = tool.name, .parameters_json = tool.parameters_json});
  }
  return grammars_->ForToolCalls(tools, !wish.one_call);
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> AnswerConstraints::Make(
    const ConstraintWish& wish) const {
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<TokenConstraint> form, MakeForm(wish));
  if (!wish.reasoning_open && !wish.reasoning_allowed) return form;
  if (!reasoning_) {
    return absl::UnimplementedError(
        "this model's vocabulary has no tokens for reasoning, so nothing can bound it");
  }
  ReasoningBudgetOptions options{.vocab_count = vocab_count_,
                                 .end_token = reasoning_->end,
                                 .starts_inside = wish.reasoning_open,
                                 .tokens_max = wish.reasoning_tokens_max};
  if (wish.reasoning_allowed) options.start_token = reasoning_->start;
  // An answer of some form must come, and where reasoning is bounded it is not the answer.
  options.forbidden_inside = stop_tokens_;
  return ReasoningBudget::Create(std::move(options), std::move(form));
}

}  // namespace hearth
