// One generation: reads a prompt, then emits tokens window by window. A window's rows are the last
// emitted token and the drafts of the MTP head; which of them are kept is decided by the sampler's
// own choice at each row, so drafting never changes the output.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/model/sampling/acceptance.h"
#include "runtime/model/sampling/finish_reason.h"
#include "runtime/model/sampling/sampler.h"
#include "runtime/model/sampling/stop_strings.h"
#include "runtime/model/tokenizer/stream_decoder.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

inline constexpr uint32_t kDraftsMax = 8;

struct GenerationRequest {
  std::vector<TokenId> prompt;  // at least one token
  uint32_t max_tokens = 128;
  uint32_t drafts_max = 0;  // per window; 0 decodes one row at a time
  bool ignore_stop_tokens = false;
  SamplingParams sampling;
  std::vector<std::string> stop_strings;
  uint32_t context_tokens_max = 0;  // 0: the model's own
  // Whether stats().logits_xxh3 is asked for: every logit then crosses to the host, even those that
  // no choice looks at.
  bool hash_logits = true;
};

struct GenerationStats {
  uint32_t prompt_tokens = 0;
  int64_t prompt_ns = 0;
  int64_t decode_ns = 0;  // everything after the prompt, drafting included
  int64_t draft_ns = 0;
  uint64_t windows = 0;                        // decode passes of the trunk
  uint64_t decode_bytes = 0;                   // weights that decoding had to read, drafts included
  std::array<uint64_t, kDraftsMax> drafted{};  // by position in the window
  std::array<uint64_t, kDraftsMax> accepted{};
  RequestCounts served;  // who computed the experts of its rows, drafting not counted
  // Over the fp32 logits that each emitted token was chosen from; 0: not asked for.
  uint64_t logits_xxh3 = 0;
};

class Generation {
 public:
  using PromptProgress = std::function<void(uint64_t done_tokens, uint64_t total_tokens)>;

  // `runner`, `tokenizer` and `clock` outlive the generation. InvalidArgument names the field; a
  // prompt that does not fit the context is ResourceExhausted with both sizes.
  static absl::StatusOr<std::unique_ptr<Generation>> Create(ModelRunner& runner,
                                                            const Tokenizer& tokenizer,
                                                            Clock& clock,
                                                            const GenerationRequest& request);
  ~Generation();

  // Reads the prompt and emits the first token.
  absl::Status ReadPrompt(const PromptProgress& progress);
  // Runs one window. Only while !finished().
  absl::Status Step();

  bool finished() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  std::span<const TokenId> output() const { return output_; }
  // Text that became final since the last call: whole characters, never part of a stop string,
  // without the stop token.
  std::string TakeText();
  GenerationStats stats() const;

 private:
  struct Hasher;
  Generation(ModelRunner& runner, const Tokenizer& tokenizer, Clock& clock,
             const GenerationRequest& request, Sampler sampler, StopStringMatcher stops);

  absl::Status Draft();
  absl::StatusOr<TokenId> DraftChoice(uint32_t row);
  // What the rows' tokens are chosen from: all their logits, or the largest.
  absl::Status ReadHead(uint32_t row_begin, uint32_t rows);
  // Chooses tokens from the rows that were read and appends them to the output.
  absl::StatusOr<Acceptance> Accept(uint32_t rows, std::span<const TokenId> drafts);
  uint32_t KeepBeforeStopString(std::span<const TokenId> emitted);
  void FinishText();
  uint32_t DraftCount() const;

  ModelRunner& runner_;
  Clock& clock_;
  const GenerationRequest request_;
  std::unique_ptr<Sequence> sequence_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStringMatcher stops_;
  std::unique_ptr<Hasher> hasher_;
  uint32_t token_limit_ = 0;  // of the output: what was asked for, or what the context leaves
  FinishReason finish_ = FinishReason::kNone;
  std::vector<TokenId> output_;
  std::vector<TokenId> drafts_;
  std::vector<TokenId> emitted_;
  std::vector<TokenId> pair_tokens_;
  std::vector<float> logits_memory_;  // where the backend has none of its own; good within a call
  std::span<float> logits_;           // (drafts_max + 1, vocab)
  std::span<float> draft_logits_;     // (vocab)
  std::vector<std::span<const float>> rows_;
  uint32_t top_count_ = 0;     // largest logits that suffice; 0: all are needed
  std::vector<TopLogit> top_;  // (drafts_max + 1, top_count_)
  std::vector<std::span<const TopLogit>>
      top_rows_;  // of the rows that were read; empty: all logits
  std::string pending_text_;
  GenerationStats stats_;
};

}  // namespace hearth
