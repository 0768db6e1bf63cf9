// What every part of the machine did during a window, as a file that Perfetto and chrome://tracing
// open: one lane each for the passes, the GPU, its copies, the drive and every worker. Bounded:
// what does not fit is counted and left out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace hearth {

enum class TraceLane : uint8_t {
  kPass,   // the thread that runs the passes, one of the workers
  kGpu,    // number: the card
  kCopy,   // copies to the card, number: the card
  kNvme,   // reads from the drive
  kWorker  // number: the worker
};
inline constexpr uint32_t kTraceLaneCount = 5;

struct TraceSpan {
  std::string_view name;  // of static storage
  TraceLane lane = TraceLane::kPass;
  uint16_t number = 0;   // within the lane
  int64_t begin_ns = 0;  // of the process's Clock
  int64_t end_ns = 0;
  // Shown beside the span; what is invalid or 0 is not.
  LayerId layer{UINT32_MAX};
  ExpertId expert{UINT32_MAX};
  uint32_t expert_count = 0;
  uint32_t row_count = 0;
  uint64_t bytes = 0;
};

class WindowTrace {
 public:
  // Allocates room for `spans_max` spans, about 72 bytes each, and nothing later.
  explicit WindowTrace(uint32_t spans_max) : spans_(spans_max) {}

  // From any thread, without waiting.
  void Add(const TraceSpan& span);

  // The rest: while no thread is in Add(), and with what it has added made visible.
  void Clear() {
    count_.store(0, std::memory_order_relaxed);
    dropped_ = 0;
  }
  // Cuts every span at the window's bounds; one that has no part in it goes.
  void Keep(int64_t begin_ns, int64_t end_ns);
  uint32_t span_count() const;
  uint64_t dropped_count() const;  // spans that found no room
  // Of all spans of a lane; overlapping ones count once.
  int64_t BusyNs(TraceLane lane, uint16_t number) const;

  // JSON trace events, times from the first span's begin. Spans of one lane that overlap without
  // lying within each other get rows of their own. `title` is any text, told under "otherData".
  std::string ToJson(std::string_view title) const;

 private:
  std::vector<TraceSpan> spans_;
  std::atomic<uint64_t> count_{0};  // calls of Add() since the last Clear() or Keep()
  uint64_t dropped_ = 0;            // before that
};

// A span of the passes' lane that lasts as long as this lives; without a trace: nothing.
class PassSpan {
 public:
  // `name`: of static storage. The others outlive this.
  PassSpan(WindowTrace* trace, Clock& clock, std::string_view name, LayerId layer = LayerId())
      : trace_(trace), clock_(clock), name_(name), layer_(layer) {
    if (trace_ != nullptr) begin_ns_ = clock_.NowNs();
  }
  ~PassSpan() {
    if (trace_ == nullptr) return;
    trace_->Add({.name = name_, .begin_ns = begin_ns_, .end_ns = clock_.NowNs(), .layer = layer_});
  }
  PassSpan(const PassSpan&) = delete;
  PassSpan& operator=(const PassSpan&) = delete;

 private:
  WindowTrace* trace_;
  Clock& clock_;
  std::string_view name_;
  LayerId layer_;
  int64_t begin_ns_ = 0;
};

}  // namespace hearth
