// A grammar as the constraint of one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/ids.h"
#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/machine.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"
#include "runtime/model/sampling/token_constraint.h"

namespace hearth::grammar {

class GrammarConstraint final : public TokenConstraint {
 public:
  // Allowed where the text is complete; after one of them only these are.
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                    LeafMaskSources sources, std::vector<TokenId> stop_tokens,
                    uint64_t budget_bytes);

  std::span<const uint64_t> Allowed() override;
  void Push(TokenId token) override;
  void PopTo(uint32_t count) override;

  // Whether what was pushed is a whole text of the grammar.
  bool Complete() const;
  uint64_t MemoryBytes() const;

 private:
  static constexpr ConfigId kStopped = UINT32_MAX;  // a stop token was pushed
  static constexpr uint32_t kRecentMax = 128;       // states that PopTo need not find again

  ConfigId After(ConfigId config, TokenId token);
  void Append(ConfigId config);
  bool IsStop(TokenId token) const;
  void StayWithinBudget();

  const std::shared_ptr<const TokenTrie> trie_;
  const std::vector<TokenId> stop_tokens_;
  const uint64_t budget_bytes_;
  Machine machine_;
  TokenMasks token_masks_;

  std::vector<TokenId> tokens_;
  // recent_[i]: after the first recent_begin_ + i tokens; the last one is now.
  std::vector<ConfigId> recent_;
  uint32_t recent_begin_ = 0;

  std::vector<std::vector<uint64_t>> masks_;  // by slot
  std::vector<ConfigId> mask_config_;         // by slot
  absl::flat_hash_map<ConfigId, uint32_t> slot_of_;
  uint32_t slots_max_;
  uint32_t next_slot_ = 0;  // the one that is used next, or again
};

}  // namespace hearth::grammar
