// Traces of a server's next rounds (at most one pass over a prompt and one window each), asked for
// from any thread, taken by the thread that runs them: one at a time, bounded in windows, in spans
// and in time. Outlives the passes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/window_trace.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

struct TraceOrder {
  uint32_t windows = 1;              // rounds, 1 to kTraceWindowsMax
  int64_t wait_ns = 10'000'000'000;  // for them to be run; the trace then holds those that were
};
inline constexpr uint32_t kTraceWindowsMax = 64;
inline constexpr int64_t kTraceWaitMaxNs = 60'000'000'000;
// 72 bytes each while it is taken, about 200 as JSON.
inline constexpr uint32_t kTraceSpansMax = 1 << 16;

class TraceRequests {
 public:
  // The JSON of the next windows, for ui.perfetto.dev. Waits for them. InvalidArgument for an order
  // beyond the limits; ResourceExhausted while another is taken; DeadlineExceeded when no window
  // was run in time; Unavailable after Stop().
  absl::StatusOr<std::string> Take(const TraceOrder& order);

  // Around every round, and before waiting for work, which ends a trace early; on the thread that
  // runs the passes. A load of a flag where nobody asks. Errors are told to whoever asked.
  void BeforeRound(ModelRunner& runner) {
    if (!taking_ && wanted_.load(std::memory_order_acquire)) Begin(runner);
  }
  void AfterRound(ModelRunner& runner) {
    if (taking_) EndRound(runner);
  }
  void BeforeIdle(ModelRunner& runner) {
    if (taking_) Finish(runner);
  }
  // Whoever waits is told Unavailable, from now on.
  void Stop();

 private:
  enum class State : uint8_t { kNone, kAsked, kTaking, kDone };
  void Begin(ModelRunner& runner);
  void EndRound(ModelRunner& runner);
  void Finish(ModelRunner& runner);

  std::atomic<bool> wanted_{false};
  bool taking_ = false;  // of the thread that runs the passes
  std::mutex mutex_;     // guards what follows
  std::condition_variable done_;
  State state_ = State::kNone;
  bool give_up_ = false;    // time is up: what has been taken is all
  bool abandoned_ = false;  // and nobody waits any more
  bool stopping_ = false;
  uint32_t windows_left_ = 0;
  uint32_t windows_taken_ = 0;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
  absl::Status failed_;
  std::unique_ptr<WindowTrace> trace_;
};

}  // namespace hearth
