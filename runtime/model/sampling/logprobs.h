// Log probabilities as APIs tell them: natural, of the model's own distribution, so neither
// temperature nor penalties nor constraints are in them. Summed in double; the same bits on every
// processor but for the logarithm of the C library.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace hearth {

// What clients of both API dialects may ask for at most, per token.
inline constexpr uint32_t kTopLogprobsMax = 20;

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // -inf for a logit of -inf
  bool operator==(const TokenLogprob&) const = default;
};

// One emitted token, where log probabilities were asked for.
struct TokenReport {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // by falling probability, equal ones by rising token
};

// Fills `top` (at most kTopLogprobsMax, and at most the vocabulary) with the most probable tokens
// of a row whose largest logit is finite, and returns the log probability of `chosen`.
TokenLogprob ReadLogprobs(std::span<const float> logits, TokenId chosen,
                          std::span<TokenLogprob> top);

}  // namespace hearth
