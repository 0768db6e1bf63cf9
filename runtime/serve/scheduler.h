// Serves completions to many clients from one model: requests wait in a bounded queue, are admitted
// while there is memory for their sequences, read their prompts a pass at a time in between windows,
// and decode together, a few rows each. What a request is given does not depend on what else is
// served: it is token for token what it would be alone.
//
// Two threads' work: any thread submits and cancels; one thread, the engine's, runs rounds. A round
// is at most one pass over a prompt and one window, so that is how long a cancelled request goes on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prompt_cuts.h"
#include "runtime/engine/window_batch.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/active_request.h"
#include "runtime/serve/completion.h"
#include "runtime/serve/request_queue.h"
#include "runtime/serve/telemetry/serve_counters.h"

namespace hearth {

class PrefixCache;

struct SchedulerOptions {
  uint32_t sequences_max = 8;   // at work at once, reading or decoding
  uint32_t queue_max = 256;     // requests that wait; more are refused
  uint32_t drafts_max = 0;      // per window and sequence, while few decode; 0 without an MTP head
  uint32_t context_tokens_max = 0;  // of a request, prompt and output; 0: the model's own
  uint64_t state_budget_bytes = UINT64_MAX;  // for all sequences at work
  int64_t timeout_ns = 0;       // of a request, from Submit to its end; 0: none
  int64_t aging_ns = 10'000'000'000;  // waiting so long counts as one step of priority
};

class Scheduler final : public CompletionService {
 public:
  // All outlive the scheduler; `prefixes` may be null. InvalidArgument names the option.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(ModelRunner& runner,
                                                           const Tokenizer& tokenizer,
                                                           Clock& clock, PrefixCache* prefixes,
                                                           const SchedulerOptions& options);
  // REQUIRES that no thread is in Serve(). Requests at hand get OnError with Unavailable.
  ~Scheduler() override;

  absl::StatusOr<CompletionId> Submit(CompletionRequest request,
                                      std::shared_ptr<CompletionSink> sink) override;
  void Cancel(CompletionId id) override;

  // Takes no more requests; those at hand are finished. Serve() returns when there are none.
  void Drain();
  // Takes no more requests and ends those at hand within a round: OnError with Unavailable.
  void Stop();

  // The engine's thread: rounds until drained or stopped; sleeps while there is nothing to do.
  void Serve();
  // One round, for whoever has no thread for it; false when there was nothing to do.
  bool RunRound();

  // As after the last round; any thread.
  ServeCounters counters() const;
  uint32_t context_tokens_max() const { return context_tokens_max_; }
  const SchedulerOptions& options() const { return options_; }

 private:
  Scheduler(ModelRunner& runner, const Tokenizer& tokenizer, Clock& clock, PrefixCache* prefixes,
            const SchedulerOptions& options);
};

}  // namespace hearth
