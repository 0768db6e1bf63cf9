// What a request may say about how its tokens are chosen, and the range that each field accepts.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/ids.h"

namespace hearth {

struct LogitBias {
  TokenId token = 0;
  float bias = 0;  // added to the logit before anything else; [-100, 100]
};

// The defaults choose greedily and change no logit. The order in which the fields act: sampler.h.
struct SamplingParams {
  float temperature = 0;              // [0, 100]; 0 takes the most likely token
  uint32_t top_k = 0;                 // [0, vocabulary]; 0 is off
  float top_p = 1;                    // [0, 1]; 1 is off, 0 keeps the most likely token
  float min_p = 0;                    // [0, 1]; relative to the most likely token; 0 is off
  float repetition_penalty = 1;       // [0.01, 100]; 1 is off
  float frequency_penalty = 0;        // [-2, 2] per occurrence in the output
  float presence_penalty = 0;         // [-2, 2] once for a token that the output holds
  std::vector<LogitBias> logit_bias;  // at most kLogitBiasCountMax, each token once
  uint64_t seed = 0;
  uint32_t min_tokens = 0;  // no stop token before this many output tokens

  bool greedy() const { return temperature == 0; }

  // InvalidArgument naming the field, its value and what is accepted. NaN and infinities are
  // refused.
  absl::Status Validate(uint32_t vocab_count) const;
};

// Bounds the work per token and the size of a request; clients send tens.
inline constexpr uint32_t kLogitBiasCountMax = 16384;
// Above every context length that is supported.
inline constexpr uint32_t kMinTokensMax = 1u << 20;

}  // namespace hearth
