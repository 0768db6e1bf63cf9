#include "runtime/model/sampling/token_history.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

TokenHistory::TokenHistory(const Options& options)
    : vocab_count_(options.vocab_count), count_tokens_(options.count_tokens) {
  tokens_.reserve(options.token_count_reserve);
  if (!count_tokens_) return;
  counts_.resize(vocab_count_);
  output_counts_.resize(vocab_count_);
  const uint32_t distinct_max = std::min(vocab_count_, options.token_count_reserve);
  distinct_.reserve(distinct_max);
  distinct_output_.reserve(distinct_max);
}

void TokenHistory::Count(TokenId token, std::vector<uint32_t>& counts,
                         std::vector<TokenId>& distinct) {
  if (counts[static_cast<uint32_t>(token)]++ == 0) distinct.push_back(token);
}

void TokenHistory::Uncount(TokenId token, std::vector<uint32_t>& counts,
                           std::vector<TokenId>& distinct) {
  if (--counts[static_cast<uint32_t>(token)] != 0) return;
  // Tokens leave in the reverse of the order in which they came, so this one came last of those
  // left.
  HEARTH_DCHECK(distinct.back() == token);
  distinct.pop_back();
}

void TokenHistory::Reset(std::span<const TokenId> prompt) {
  for (const TokenId t : distinct_) counts_[static_cast<uint32_t>(t)] = 0;
  for (const TokenId t : distinct_output_) output_counts_[static_cast<uint32_t>(t)] = 0;
  distinct_.clear();
  distinct_output_.clear();
  tokens_.assign(prompt.begin(), prompt.end());
  prompt_count_ = token_count();
  for (const TokenId t : tokens_) {
    HEARTH_CHECK(static_cast<uint32_t>(t) < vocab_count_);
    if (count_tokens_) Count(t, counts_, distinct_);
  }
}

void TokenHistory::Push(TokenId token) {
  HEARTH_CHECK(static_cast<uint32_t>(token) < vocab_count_);
  tokens_.push_back(token);
  if (!count_tokens_) return;
  Count(token, counts_, distinct_);
  Count(token, output_counts_, distinct_output_);
}

void TokenHistory::PopTo(uint32_t token_count_kept) {
  HEARTH_CHECK(token_count_kept >= prompt_count_);
  HEARTH_CHECK(token_count_kept <= token_count());
  while (token_count() > token_count_kept) {
    const TokenId token = tokens_.back();
    tokens_.pop_back();
    if (!count_tokens_) continue;
    Uncount(token, counts_, distinct_);
    Uncount(token, output_counts_, distinct_output_);
  }
}

}  // namespace hearth
