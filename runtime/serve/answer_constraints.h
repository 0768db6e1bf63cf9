// What a request wants of its answer's form, made into a constraint on tokens: grammars for the
// answer, a bound on the reasoning before it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/sampling/token_constraint.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/api/constraint_source.h"

namespace hearth {

class AnswerConstraints final : public ConstraintSource {
 public:
  // `vocab_count` of the model's choices. InvalidArgument for a vocabulary that grammars cannot
  // use: see GrammarStore::Create.
  static absl::StatusOr<std::unique_ptr<AnswerConstraints>> Create(const Tokenizer& tokenizer,
                                                                   std::vector<TokenId> stop_tokens,
                                                                   uint32_t vocab_count);

  absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(const ConstraintWish& wish) const override;

 private:
  struct ReasoningTokens {
    TokenId start = 0;  // <think>
    TokenId end = 0;    // </think>
  };
  AnswerConstraints() = default;
  absl::StatusOr<std::shared_ptr<TokenConstraint>> MakeForm(const ConstraintWish& wish) const;

  std::unique_ptr<GrammarStore> grammars_;
  std::optional<ReasoningTokens> reasoning_;  // none: the vocabulary has no such tokens
  std::vector<TokenId> stop_tokens_;
  uint32_t vocab_count_ = 0;
};

}  // namespace hearth
