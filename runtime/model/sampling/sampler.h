// Chooses one token from a row of logits. The steps, in this order, each over what the former left:
//   0  the constraint: tokens that it does not allow get -inf
//   1  logit bias: logit += bias
//   2  repetition penalty, for each token of prompt or output:
//      logit > 0 ? logit / r : logit * r
//   3  frequency and presence, for each token of the output:
//      logit -= frequency * occurrences + presence
//   4  min_tokens: stop tokens get -inf while the output is shorter, unless the constraint allows
//      nothing else
//   5  temperature: weight = exp((logit - largest logit) / temperature); 0 is greedy: the largest
//      logit, and nothing after
//   6  top_k keeps the k largest
//   7  top_p keeps the shortest run of the largest whose probability, among those that top_k kept,
//      reaches top_p; at least one
//   8  min_p keeps those of at least min_p times the largest probability
//   9  the draw: the token at which the running sum of probabilities passes the random number
// Of equal logits the lower id is the larger. Weights and sums are double; weights below 2^-1021 of
// the largest are zero. Results are the same bits on every processor.
//
// The random number is a function of (seed, count of tokens before) and nothing else: neither how
// many rows a window has nor what other requests do can change a sampled token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/base/top_logit.h"
#include "runtime/model/sampling/sampling_params.h"
#include "runtime/model/sampling/token_constraint.h"
#include "runtime/model/sampling/token_history.h"

namespace hearth {

struct TokenProbability {
  TokenId token = 0;
  double probability = 0;
};

struct SamplerConfig {
  SamplingParams params;
  uint32_t vocab_count = 0;
  std::vector<TokenId> stop_tokens;  // what ends the output; empty to go on regardless
  uint32_t token_count_reserve = 0;  // prompt and output for which nothing is allocated later
  std::shared_ptr<TokenConstraint> constraint;  // sees the output; null: none
};

// One request's choices. Owned by one thread.
class Sampler {
 public:
  static absl::StatusOr<Sampler> Create(SamplerConfig config);

  // Starts over with this prompt. InvalidArgument when a token is not in the vocabulary.
  absl::Status SetPrompt(std::span<const TokenId> prompt);
  // Every token that the next choice has before it must have been pushed, tentative ones too.
  void Push(TokenId token);
  // Takes back all but the first `token_count` tokens of prompt and output.
  void PopTo(uint32_t token_count);

  // The choice for the position after the history, which it leaves as it is. `logits` has
  // vocab_count values; NaN, +inf or nothing above -inf is DataLoss naming token and position.
  absl::StatusOr<TokenId> Sample(std::span<const float> logits);

  // How many of a row's largest logits are all that a choice looks at; 0: it needs the row, as
  // under a constraint.
  uint32_t largest_needed() const;
  // The choice of Sample from a row whose largest_needed() largest logits these are, by falling
  // order, equal ones by rising token, and in which no logit is NaN or +inf.
  TokenId SampleLargest(std::span<const TopLogit> largest);

  // What Sample draws from: the tokens of non-zero probability, in the order of the draw (by
  // falling probability when top_k or top_p is on, otherwise by id). Valid until the next call.
  absl::StatusOr<std::span<const TokenProbability>> Distribution(std::span<const float> logits);

  bool IsStopToken(TokenId token) const;
  const SamplingParams& params() const { return config_.params; }
  const TokenHistory& history() const { return history_; }
  uint32_t vocab_count() const { return config_.vocab_count; }

 private:
  explicit Sampler(SamplerConfig config);

  std::span<const float> Adjust(std::span<const float> logits);
  void Forbid(std::span<const uint64_t> allowed);  // all others, in adjusted_
  bool AllowsOnlyStopTokens(std::span<const uint64_t> allowed) const;
  absl::StatusOr<float> LargestLogit(std::span<const float> logits) const;
  absl::StatusOr<TokenId> Greedy(std::span<const float> adjusted) const;
  // Fills candidates_ with weights (the largest is 1) and returns their sum.
  double Weigh(std::span<const float> adjusted, float largest);
  double WeighTopK(std::span<const float> adjusted, float largest);
  double WeighSelected();  // of candidates_, those that top_k kept
  TokenId Draw(double sum) const;
  double WeighTopP(std::span<const float> adjusted, float largest);
  double WeighAll(std::span<const float> adjusted, float largest);
  // Keeps the shortest prefix of the sorted candidates_ that reaches `weight`; false if none does.
  bool KeepPrefix(double weight);
  double KeepMinP();
  void SelectLargest(std::span<const float> logits, uint32_t count);
  void AppendSelected(std::span<const float> logits, float largest);

  SamplerConfig config_;
  TokenHistory history_;
  bool adjusts_ = false;                      // steps 1 to 4 may change logits
  std::vector<float> adjusted_;               // [vocab_count] when some step changes logits
  std::vector<uint64_t> selected_;            // rank keys, largest first
  std::vector<TokenProbability> candidates_;  // weights until Distribution divides them
};

}  // namespace hearth
