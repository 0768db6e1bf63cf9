// What the scheduler of a server counts: written by the thread that runs the passes, plain numbers
// of a fixed size, so that copying them allocates nothing. All but the gauges only grow.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/engine/generation.h"
#include "runtime/model/sampling/finish_reason.h"
#include "runtime/serve/telemetry/time_histogram.h"

namespace hearth {

// Why a request was not taken.
enum class Refusal : uint8_t {
  kInvalid,    // a field that can never be served
  kContext,    // a prompt beyond the context
  kQueueFull,  // or no memory for it
  kStopping
};
inline constexpr uint32_t kRefusalCount = 4;
const char* RefusalName(Refusal refusal);  // "invalid", "context", "queue_full", "stopping"

inline constexpr uint32_t kFinishReasonCount = 5;  // FinishReason, kNone included and never counted

enum class RequestPhase : uint8_t { kQueued, kReading, kDecoding };
const char* RequestPhaseName(RequestPhase phase);  // "queued", "reading", "decoding"

// Of one request that has not ended. Nothing of what it says.
struct RequestInFlight {
  uint64_t id = 0;
  RequestPhase phase = RequestPhase::kQueued;
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // of the prompt
  uint32_t read_tokens = 0;    // of the prompt, the reused ones included
  uint32_t output_tokens = 0;
  int64_t submitted_ns = 0;     // of the clock, as the next
  int64_t first_token_ns = -1;  // -1: not yet
  bool operator==(const RequestInFlight&) const = default;
};

inline constexpr uint32_t kRequestsShownMax = 32;  // the oldest; the gauges count all
inline constexpr uint32_t kWindowRowsCounted = 16;

struct ServeCounters {
  // Gauges.
  uint32_t queued = 0;    // not begun
  uint32_t reading = 0;   // a prompt
  uint32_t decoding = 0;  // at least one token emitted
  uint32_t shown_count = 0;
  std::array<RequestInFlight, kRequestsShownMax> shown{};  // the first shown_count, oldest first

  // Requests. submitted = queued + reading + decoding + all that finished.
  uint64_t submitted = 0;
  std::array<uint64_t, kFinishReasonCount> finished{};  // by FinishReason; kError: OnError
  std::array<uint64_t, kRefusalCount> refused{};        // by Refusal; not among submitted

  // Tokens.
  uint64_t prompt_tokens = 0;  // computed: reused ones are not among them
  uint64_t reused_tokens = 0;  // of prompts, whose state was found ready
  uint64_t output_tokens = 0;  // emitted, stop tokens included

  TimeHistogram queue_wait;    // from being submitted to the first pass
  TimeHistogram first_token;   // from being submitted
  TimeHistogram token_gap;     // between tokens of a request; tokens of one window share its time
  TimeHistogram request_time;  // from being submitted to the end, however it ended

  // Passes.
  std::array<uint64_t, kWindowRowsCounted> windows_by_rows{};  // [r - 1]: of r rows; more: the last
  uint64_t prompt_passes = 0;
  TimeHistogram window_time;  // decode windows, everything between two of them included
  TimeHistogram overhead;     // of a window: what is no pass, no draft and no choice of a token
  int64_t idle_ns = 0;        // nothing to do

  // By position in the window.
  std::array<uint64_t, kDraftsMax> drafted{};
  std::array<uint64_t, kDraftsMax> accepted{};

  void CountWindow(uint32_t rows) {
    if (rows == 0) return;
    ++windows_by_rows[(rows < kWindowRowsCounted ? rows : kWindowRowsCounted) - 1];
  }
  bool operator==(const ServeCounters&) const = default;
};

// What the cache of prompts' states counts.
struct PrefixCounters {
  uint64_t lookups = 0;
  uint64_t hits = 0;  // lookups that found at least one token
  uint64_t reused_tokens = 0;
  uint64_t stored = 0;   // states taken in
  uint64_t evicted = 0;  // for want of room
  uint64_t entries = 0;  // held now, in RAM
  uint64_t bytes = 0;    // that they take
  uint64_t budget_bytes = 0;
  uint64_t disk_entries = 0;
  uint64_t disk_bytes = 0;
  uint64_t disk_budget_bytes = 0;  // 0: nothing is kept on disk
  uint64_t disk_hits = 0;          // of hits: read back
  uint64_t disk_errors = 0;        // damaged, of another model, unreadable: done without
  bool operator==(const PrefixCounters&) const = default;
};

}  // namespace hearth
