// The border between the API's dialects and whoever computes: what is asked for, in tokens, and
// what is told of it while it is computed. Knows neither JSON nor HTTP.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/engine/generation.h"
#include "runtime/model/sampling/finish_reason.h"
#include "runtime/model/sampling/logprobs.h"
#include "runtime/model/sampling/sampling_params.h"
#include "runtime/model/sampling/token_constraint.h"

namespace hearth {

enum class Priority : uint8_t { kLow, kNormal, kHigh };

struct CompletionRequest {
  std::vector<TokenId> prompt;         // at least one token
  std::optional<uint32_t> max_tokens;  // none: what the context leaves
  bool ignore_stop_tokens = false;
  SamplingParams sampling;
  std::vector<std::string> stop_strings;
  std::shared_ptr<TokenConstraint> constraint;  // null: none; this request's own
  bool wants_logprobs = false;
  uint32_t top_logprobs = 0;  // alternatives per token, at most kTopLogprobsMax
  Priority priority = Priority::kNormal;
  std::string cache_salt;  // prefixes are shared among requests of one salt; kPrefixSaltBytesMax
  int64_t timeout_ns = 0;  // from Submit to the end; 0: none but the service's own
};

// What became final since the last one. Deltas joined are the answer.
struct CompletionDelta {
  std::string text;                 // valid UTF-8, no stop token, no part of a stop string
  uint32_t tokens = 0;              // emitted since the last delta
  std::vector<TokenReport> report;  // one per emitted token but stop tokens
};

struct CompletionEnd {
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;  // the one that ended it; empty: none did
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // of the prompt, whose state was found ready
  uint32_t output_tokens = 0;  // stop token included
  int64_t queued_ns = 0;       // from Submit to the first pass
  int64_t first_token_ns = 0;  // from Submit
  int64_t total_ns = 0;        // from Submit
  GenerationStats stats;
};

// Who is told. Called on the service's thread, one call at a time per request: must not block and
// must not call the service. Exactly one of OnEnd and OnError comes, as the last.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void OnDelta(CompletionDelta delta) = 0;
  virtual void OnEnd(const CompletionEnd& end) = 0;
  // ResourceExhausted: no memory for it; DeadlineExceeded: too long; Unavailable: the service is
  // stopping; others: it failed, alone.
  virtual void OnError(const absl::Status& status) = 0;
};

using CompletionId = uint64_t;

// Any number of threads may call it at once.
class CompletionService {
 public:
  virtual ~CompletionService() = default;
  // Refuses at once what can never be served: InvalidArgument names the field and what is accepted;
  // a prompt beyond the context is OutOfRange with both lengths; a full queue is ResourceExhausted;
  // Unavailable while stopping. The sink is not called then.
  virtual absl::StatusOr<CompletionId> Submit(CompletionRequest request,
                                              std::shared_ptr<CompletionSink> sink) = 0;
  // The client went away or asked to end: OnEnd with kCancelled follows within one pass. Nothing
  // happens for a request that has ended.
  virtual void Cancel(CompletionId id) = 0;
};

}  // namespace hearth
