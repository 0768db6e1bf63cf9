// A vocabulary made for the tests of grammars, and walks with it through a schema.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/grammar_constraint.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/grammar/text_leaves.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth::grammar {

// Every byte, pieces of JSON that span its elements, pieces of characters, and words.
std::vector<std::string> TestTokens();

class GrammarFixture {
 public:
  static constexpr uint64_t kBudgetBytes = 1_MiB;

  GrammarFixture();

  std::shared_ptr<const Grammar> Compile(std::string_view schema,
                                         const GrammarOptions& options = {}) const;
  std::unique_ptr<GrammarConstraint> Constrain(std::shared_ptr<const Grammar> grammar,
                                               uint64_t budget_bytes = kBudgetBytes) const;
  std::unique_ptr<GrammarConstraint> Constrain(std::string_view schema) const {
    return Constrain(Compile(schema));
  }

  // Whether `text` is a whole text of the schema, written in tokens that `random` chooses.
  bool Accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text,
               Random& random) const;
  bool Accepts(std::string_view schema, std::string_view text) const;
  // The text of a random walk over allowed tokens, which tends to an end after `tokens_max` tokens.
  // nullopt: it did not come to one. A dead end is a failure of the test.
  std::optional<std::string> Walk(GrammarConstraint& constraint, Random& random,
                                  uint32_t tokens_max = 60) const;

  std::string_view Text(TokenId token) const { return tokens_[static_cast<size_t>(token)]; }
  TokenId stop() const { return stop_; }
  const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }
  const CommonLeaves& leaves() const { return *leaves_; }
  LeafMaskSources Sources() const;

 private:
  std::vector<std::string> tokens_;
  TokenId stop_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<const CommonLeaves> leaves_;
  std::shared_ptr<const std::vector<const Dfa*>> common_;
  std::shared_ptr<LeafMasks> common_masks_;
};

bool IsSet(std::span<const uint64_t> mask, TokenId token);
std::vector<TokenId> TokensOf(std::span<const uint64_t> mask);

// A schema of random shape, all of whose keywords are supported; some are never satisfied.
std::string RandomSchema(Random& random);

}  // namespace hearth::grammar
