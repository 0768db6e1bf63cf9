// One generation: reads a prompt, then emits tokens window by window. A window's rows are the last
// emitted token and the drafts of the MTP head; which of them are kept is decided by the sampler's
// own choice at each row, so drafting never changes the output. Several generations share windows:
// window_batch.h.
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
#include "runtime/engine/head_rows.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/engine/prompt_cuts.h"
#include "runtime/engine/window_batch.h"
#include "runtime/model/sampling/acceptance.h"
#include "runtime/model/sampling/finish_reason.h"
#include "runtime/model/sampling/logprobs.h"
#include "runtime/model/sampling/sampler.h"
#include "runtime/model/sampling/stop_strings.h"
#include "runtime/model/sampling/token_constraint.h"
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
  // This request's own, at its start; null: none. Not together with ignore_stop_tokens: what it
  // allows may come down to a stop token.
  std::shared_ptr<TokenConstraint> constraint;
  bool wants_logprobs = false;
  uint32_t top_logprobs = 0;  // alternatives per token, at most kTopLogprobsMax
  std::string cache_salt;     // see PrefixQuery
};

// What a generation may share with others; all outlive it.
struct GenerationShared {
  WindowBatch* batch = nullptr;     // null: one of its own, made for it
  PrefixCache* prefixes = nullptr;  // null: every prompt is read whole
};

struct GenerationStats {
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // of the prompt: they were not read
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
                                                            const GenerationRequest& request,
                                                            const GenerationShared& shared = {});
  ~Generation();

  // Runs one pass over the prompt, the first time after what the prefix cache has of it; the last
  // one emits the first token. Only while !prompt_read(). After an error nothing more can be done
  // with the generation; so for all that follows.
  absl::Status ReadPromptChunk();
  bool prompt_read() const { return !output_.empty() || finished(); }
  uint32_t prompt_tokens_read() const;
  // Reads what is left of the prompt and emits the first token.
  absl::Status ReadPrompt(const PromptProgress& progress);
  // Runs one window of this sequence alone, with all its drafts. Only while !finished().
  absl::Status Step();

  bool finished() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  std::span<const TokenId> output() const { return output_; }
  // Text that became final since the last call: whole characters, never part of a stop string,
  // without the stop token.
  std::string TakeText();
  // Of the tokens emitted since the last call, stop tokens left out; empty where not asked for.
  std::vector<TokenReport> TakeReports();
  // The stop string that ended the output; empty: none did.
  std::string_view stop_string() const;
  GenerationStats stats() const;

 private:
  friend class WindowBatch;
  struct Hasher;
  struct Parts;
  explicit Generation(Parts parts);
  static absl::Status CheckRequest(const ModelGeometry& geometry, const GenerationRequest& request,
                                   uint32_t context);

  // For WindowBatch, in the order of a window.
  // The MTP layer reads what the last pass made known and drafts min(drafts_max, room) tokens.
  absl::Status Draft(uint32_t drafts_max);
  std::span<const TokenId> WindowTokens();  // the last token emitted and the drafts
  uint32_t largest_needed() const { return largest_needed_; }  // see HeadAsk
  // Chooses tokens from the rows that were read and appends them to the output.
  absl::StatusOr<Acceptance> Accept(const HeadRows& heads, size_t ask);
  void CountDrafts(uint32_t rows_kept);

  // What the cache has of the prompt. Its failures cost time and nothing else.
  absl::Status RestorePrefix();
  PrefixQuery prefix_query() const;
  // The MTP layer reads the positions before `position_end` that it has not.
  absl::Status FollowTrunk(uint32_t position_end);
  uint32_t DraftRoom() const;
  uint32_t KeepBeforeStopString(std::span<const TokenId> emitted);
  void FinishText();
  void Report(std::span<const float> logits, TokenId token);

  ModelRunner& runner_;
  Clock& clock_;
  const GenerationRequest request_;
  std::unique_ptr<WindowBatch> own_batch_;
  WindowBatch& batch_;
  PrefixCache* const prefixes_;
  const std::vector<uint32_t> cuts_;  // of the prompt
  uint32_t cuts_done_ = 0;
  std::unique_ptr<Sequence> sequence_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStringMatcher stops_;
  std::unique_ptr<Hasher> hasher_;
  uint32_t token_limit_ = 0;  // of the output: what was asked for, or what the context leaves
  uint32_t largest_needed_ = 0;
  bool drafting_ = false;  // the MTP layer has followed so far
  FinishReason finish_ = FinishReason::kNone;
  std::vector<TokenId> output_;
  std::array<TokenId, kDraftsMax + 1> window_{};
  uint32_t draft_count_ = 0;  // in window_, from its second token on
  std::array<TokenId, kDraftsMax + 1> emitted_{};
  std::vector<TokenId> pair_tokens_;
  std::string pending_text_;
  std::vector<TokenReport> pending_reports_;
  GenerationStats stats_;
};

}  // namespace hearth
