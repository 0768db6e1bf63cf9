// The tokens that the next one may depend on, prompt and output, with the counts that penalties
// need. A stack: the tentative tokens of a window are pushed like any other and popped when
// refused, so that there is one definition of "the tokens before this row".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace hearth {

class TokenHistory {
 public:
  struct Options {
    uint32_t vocab_count = 0;
    uint32_t token_count_reserve = 0;  // no allocation while the history is no longer than this
    bool count_tokens = false;         // false: the accessors of counts are empty
  };
  explicit TokenHistory(const Options& options);

  // Forgets everything and starts with `prompt`; each token is in [0, vocab_count).
  void Reset(std::span<const TokenId> prompt);
  void Push(TokenId token);          // an output token, in [0, vocab_count)
  void PopTo(uint32_t token_count);  // in [prompt_count(), token_count()]

  uint32_t vocab_count() const { return vocab_count_; }
  uint32_t token_count() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t prompt_count() const { return prompt_count_; }
  uint32_t output_count() const { return token_count() - prompt_count_; }
  std::span<const TokenId> tokens() const { return tokens_; }

  // Each token once, in order of first appearance.
  std::span<const TokenId> distinct_tokens() const { return distinct_; }
  std::span<const TokenId> distinct_output_tokens() const { return distinct_output_; }
  // How often the output holds `token`; only with count_tokens.
  uint32_t output_occurrences(TokenId token) const {
    return output_counts_[static_cast<uint32_t>(token)];
  }

 private:
  void Count(TokenId token, std::vector<uint32_t>& counts, std::vector<TokenId>& distinct);
  void Uncount(TokenId token, std::vector<uint32_t>& counts, std::vector<TokenId>& distinct);

  uint32_t vocab_count_;
  bool count_tokens_;
  uint32_t prompt_count_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<uint32_t> counts_;         // [vocab_count], prompt and output
  std::vector<uint32_t> output_counts_;  // [vocab_count]
  std::vector<TokenId> distinct_;
  std::vector<TokenId> distinct_output_;
};

}  // namespace hearth
