#include "runtime/serve/api/grammar_constraints.h"

#include <utility>

#include "runtime/base/status.h"
#include "runtime/model/sampling/reasoning_budget.h"

namespace hearth {

GrammarConstraints::GrammarConstraints(const Tokenizer& tokenizer, std::vector<TokenId> stop_tokens,
                                       std::unique_ptr<GrammarStore> store)
    : vocab_count_(tokenizer.vocab_count()),
      stop_tokens_(std::move(stop_tokens)),
      think_begin_(tokenizer.FindToken("<think>")),
      think_end_(tokenizer.FindToken("</think>")),
      store_(std::move(store)) {}

absl::StatusOr<std::unique_ptr<GrammarConstraints>> GrammarConstraints::Create(
    const Tokenizer& tokenizer, std::vector<TokenId> stop_tokens) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<GrammarStore> store,
                          GrammarStore::Create(tokenizer, {.stop_tokens = stop_tokens}));
  return std::unique_ptr<GrammarConstraints>(
      new GrammarConstraints(tokenizer, std::move(stop_tokens), std::move(store)));
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarConstraints::OfForm(
    const ConstraintWish& wish) const {
  switch (wish.form) {
    case ConstraintWish::Form::kFree:
      return nullptr;
    case ConstraintWish::Form::kJsonObject:
      return store_->ForAnyObject();
    case ConstraintWish::Form::kJsonSchema:
      return store_->ForSchema(wish.schema_json);
    case ConstraintWish::Form::kToolCall:
      break;
  }
  std::vector<ToolSignature> signatures;
  for (const ToolShape& tool : wish.tools) {
    signatures.push_back({.name = tool.name, .parameters_json = tool.parameters_json});
  }
  return store_->ForToolCalls(signatures, /*several=*/!wish.one_call);
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarConstraints::Make(
    const ConstraintWish& wish) const {
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<TokenConstraint> form, OfForm(wish));
  if (!wish.reasoning_allowed && !wish.reasoning_open) return form;
  if (!think_end_.has_value()) {
    return absl::UnimplementedError(
        "this model's tokenizer has no token </think>: expected an answer without reasoning");
  }
  ReasoningBudgetOptions options;
  options.vocab_count = vocab_count_;
  options.end_token = *think_end_;
  options.start_token = think_begin_;
  options.starts_inside = wish.reasoning_open;
  options.tokens_max = wish.reasoning_tokens_max;
  options.forbidden_inside = stop_tokens_;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<ReasoningBudget> budget,
                          ReasoningBudget::Create(std::move(options), std::move(form)));
  return std::shared_ptr<TokenConstraint>(std::move(budget));
}

}  // namespace hearth
