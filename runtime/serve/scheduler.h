// Serves completions to many clients from one model: requests wait in a bounded queue, are admitted
// while there is memory for their sequences, read their prompts a pass at a time in between
// windows, and decode together, a few rows each. What a request is given does not depend on what
// else is served: it is token for token what it would be alone.
//
// Any thread submits and cancels; one thread, the engine's, runs rounds. A round is at most one
// pass over a prompt and one window; a cancelled or late request ends before the next pass.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/engine/window_batch.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/completion.h"
#include "runtime/serve/request_queue.h"
#include "runtime/serve/served_request.h"
#include "runtime/serve/telemetry/round_observer.h"
#include "runtime/serve/telemetry/serve_counters.h"
#include "runtime/serve/window_fill.h"

namespace hearth {

struct SchedulerOptions {
  uint32_t sequences_max = 8;       // at work at once, reading or decoding; at most kSequencesMax
  uint32_t queue_max = 256;         // requests that wait; at most kQueueMax
  uint32_t context_tokens_max = 0;  // of a request, prompt and output; 0: the model's own
  uint32_t drafts_max = 0;          // per window and sequence; needs an MTP head
  uint32_t drafting_sequences_max = 4;       // more decode without drafts
  uint64_t state_budget_bytes = UINT64_MAX;  // of the states of all sequences at work
  int64_t timeout_ns = 0;                    // of a request, from Submit to its end; 0: none
  int64_t aging_ns = 10'000'000'000;         // a wait that counts as one step of priority
};
inline constexpr uint32_t kSequencesMax = 256;
inline constexpr uint32_t kQueueMax = 65536;

struct SchedulerDeps {  // all outlive the scheduler
  ModelRunner& runner;
  const Tokenizer& tokenizer;
  Clock& clock;
  PrefixCache* prefixes = nullptr;    // null: every prompt is read whole
  RoundObserver* observer = nullptr;  // may be null
};

class Scheduler final : public CompletionService {
 public:
  // InvalidArgument names the option, what it is and what is accepted.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerDeps& deps,
                                                           const SchedulerOptions& options);
  // Requests at hand get OnError with Unavailable. REQUIRES that no thread is in Serve().
  ~Scheduler() override;

  absl::StatusOr<CompletionId> Submit(CompletionRequest request,
                                      std::shared_ptr<CompletionSink> sink) override;
  void Cancel(CompletionId id) override;

  // Takes no more requests; those at hand are finished, then Serve() returns. Any thread.
  void Drain();
  // Takes no more requests; those at hand get OnError with Unavailable within a pass. Any thread.
  void Stop();

  // The engine's thread: rounds until drained or stopped; sleeps while there is nothing to do.
  void Serve();
  // One round, for whoever runs them by hand, on one thread; false when there was nothing to do.
  bool RunRound();

  // As after the last round, with what was submitted since. Any thread.
  ServeCounters counters() const;
  uint32_t context_tokens_max() const { return context_tokens_max_; }
  const SchedulerOptions& options() const { return options_; }

 private:
  struct SequenceCost {
    uint64_t fixed_bytes = 0;
    uint64_t bytes_per_token = 0;
  };
  // In the order of their last pass, the longest ago first.
  using Requests = std::vector<std::unique_ptr<ServedRequest>>;

  Scheduler(const SchedulerDeps& deps, const SchedulerOptions& options, uint32_t context_tokens_max,
            const SequenceCost& cost);

  absl::Status Refuse(Refusal why, absl::Status status);
  RequestNeed NeedOf(const CompletionRequest& request) const;

  // Of the engine's thread.
  void EndWhatMayNotGoOn();
  void Admit();
  void ReadChunk();
  void RunWindow();
  // Hands over what is new; true when the request has ended.
  bool Settle(ServedRequest& request, const absl::Status& status);
  void Forget(std::unique_ptr<ServedRequest> request);
  void CountRound(int64_t begin_ns, const BatchTimes& before, bool window);
  void Publish();
  bool has_work() const { return !reading_.empty() || !decoding_.empty(); }

  const SchedulerDeps deps_;
  const SchedulerOptions options_;
  const uint32_t context_tokens_max_;
  const SequenceCost cost_;

  mutable std::mutex mutex_;  // guards what follows, up to counts_
  std::condition_variable wake_;
  RequestQueue queue_;
  absl::flat_hash_map<CompletionId, ServedRequest*> live_;  // queued and at work
  CompletionId next_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;
  uint64_t submitted_ = 0;
  std::array<uint64_t, kRefusalCount> refused_{};
  ServeCounters published_;

  ServeCounters counts_;  // from here on of the engine's thread
  WindowBatch batch_;
  Requests reading_;
  Requests decoding_;
  uint64_t state_bytes_ = 0;  // of the sequences at work
  std::vector<WindowShare> shares_;
  std::vector<const ServedRequest*> shown_;
  int64_t last_window_ns_ = -1;  // end of the last one, -1 when rounds without one came between
};

}  // namespace hearth
