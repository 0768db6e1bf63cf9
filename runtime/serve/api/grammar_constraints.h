// Constraints from grammars: what a request wishes of its answer's form and of its reasoning, as
// one TokenConstraint for one tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/api/constraint_source.h"

namespace hearth {

class GrammarConstraints final : public ConstraintSource {
 public:
  // The tokenizer is not needed afterwards. Errors as GrammarStore::Create.
  static absl::StatusOr<std::unique_ptr<GrammarConstraints>> Create(
      const Tokenizer& tokenizer, std::vector<TokenId> stop_tokens);

  // Besides what ConstraintSource says: Unimplemented where reasoning is to end before the answer
  // and the tokenizer has no token </think>.
  absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(const ConstraintWish& wish) const override;

 private:
  GrammarConstraints(const Tokenizer& tokenizer, std::vector<TokenId> stop_tokens,
                     std::unique_ptr<GrammarStore> store);
  absl::StatusOr<std::shared_ptr<TokenConstraint>> OfForm(const ConstraintWish& wish) const;

  const uint32_t vocab_count_;
  const std::vector<TokenId> stop_tokens_;
  const std::optional<TokenId> think_begin_;
  const std::optional<TokenId> think_end_;
  const std::unique_ptr<GrammarStore> store_;
};

}  // namespace hearth
