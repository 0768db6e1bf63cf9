// Scores a text: the negative log-likelihood of every token given those before it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prompt_cuts.h"
#include "runtime/engine/window_tracer.h"

namespace hearth {

struct ScoredToken {
  TokenId token = 0;
  double log_probability = 0;
};

struct Score {
  std::vector<double> nll;      // [n - 1]: of tokens[1], tokens[2], ... in nats
  std::vector<TokenId> argmax;  // [n]: the best token after each position
  std::vector<std::vector<ScoredToken>>
      top;  // [n][top_count], best first; empty when not asked for
  double mean_nll = 0;
};

struct ScoreOptions {
  uint32_t top_count = 0;
  // Called with each position's raw logits, in order; may be empty.
  std::function<void(uint32_t position, std::span<const float> logits)> on_logits;
  std::function<void(uint64_t done_tokens, uint64_t total_tokens)> progress;
  // Passes end where those of a prompt do, so that a text's logits are what reading it as one
  // gives. None: where the runner's limit is reached.
  std::optional<PromptCutRule> cut_rule;
  // Token counts of the passes instead, in turn, the last one repeated; a count of 1 is a decode
  // window, more a prompt pass. Empty: as above.
  std::vector<uint32_t> splits;
  // Decode windows of so many rows instead, at most the runner's limit: the traffic of decoding, on
  // a given text. 0: as above.
  uint32_t window_rows = 0;
  WindowTracer* tracer = nullptr;  // of those windows; null: none
};

// At least two tokens, at most the model's context.
absl::StatusOr<Score> ScoreTokens(ModelRunner& runner, std::span<const TokenId> tokens,
                                  const ScoreOptions& options);

}  // namespace hearth
