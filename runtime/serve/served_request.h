// One request from its acceptance to its end: what was asked, who is told, the generation once it
// has begun, and when what happened. Used by the engine's thread, but for what says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "runtime/engine/generation.h"
#include "runtime/serve/completion.h"
#include "runtime/serve/telemetry/serve_counters.h"

namespace hearth {

// What a request takes while it is at work.
struct RequestNeed {
  uint32_t context_tokens = 0;  // prompt and output
  uint32_t output_tokens = 0;
  uint64_t state_bytes = 0;
};

class ServedRequest {
 public:
  // `deadline_ns` of the clock; INT64_MAX: none.
  ServedRequest(CompletionId id, CompletionRequest request, std::shared_ptr<CompletionSink> sink,
                const RequestNeed& need, int64_t submitted_ns, int64_t deadline_ns);

  CompletionId id() const { return id_; }
  const CompletionRequest& request() const { return request_; }
  const RequestNeed& need() const { return need_; }
  int64_t submitted_ns() const { return submitted_ns_; }
  bool expired(int64_t now_ns) const { return now_ns >= deadline_ns_; }

  // Any thread.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Makes the generation. Errors are those of Generation::Create and ResourceExhausted when memory
  // is short.
  absl::Status Begin(ModelRunner& runner, const Tokenizer& tokenizer, Clock& clock,
                     const GenerationShared& shared, uint32_t drafts_max);
  // Whether its state counts as taken; see RequestNeed.
  bool admitted() const { return admitted_; }
  void set_admitted() { admitted_ = true; }
  Generation& generation() { return *generation_; }

  // Tells the sink what has become final, and `counters` what is new since the last time. After
  // each pass.
  void Deliver(int64_t now_ns, ServeCounters& counters);
  // The last call of the sink; the generation and its memory are gone afterwards.
  void End(FinishReason finish, int64_t now_ns, ServeCounters& counters);
  void Fail(const absl::Status& status, int64_t now_ns, ServeCounters& counters);

  RequestInFlight InFlight() const;

 private:
  void Count(int64_t now_ns, ServeCounters& counters);
  void CountEnd(FinishReason finish, int64_t now_ns, ServeCounters& counters);

  const CompletionId id_;
  CompletionRequest request_;
  const std::shared_ptr<CompletionSink> sink_;
  const RequestNeed need_;
  const int64_t submitted_ns_;
  const int64_t deadline_ns_;
  std::atomic<bool> cancelled_{false};
  bool admitted_ = false;
  std::unique_ptr<Generation> generation_;
  const uint32_t prompt_tokens_;
  int64_t begun_ns_ = -1;
  int64_t first_token_ns_ = -1;
  int64_t last_token_ns_ = -1;
  // Counted so far.
  uint32_t read_tokens_ = 0;  // of the prompt, reused ones included
  uint32_t reused_tokens_ = 0;
  uint32_t output_tokens_ = 0;
  uint32_t told_tokens_ = 0;  // of the output, by deltas
  std::array<uint64_t, kDraftsMax> drafted_{};
  std::array<uint64_t, kDraftsMax> accepted_{};
};

}  // namespace hearth
