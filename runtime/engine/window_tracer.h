// Keeps what happened in one window out of many, for whoever looks at it afterwards: of the window
// with a number, or of the last one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/window_trace.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

class WindowTracer {
 public:
  // `index`: of the window that is kept, counted from 0; none: the last. `runner` outlives this.
  WindowTracer(ModelRunner& runner, std::optional<uint64_t> index);
  ~WindowTracer();

  // What happens in between belongs to one window. One that is begun and not ended is not kept, and
  // no other after it.
  absl::Status Begin();
  absl::Status End();

  uint64_t window_count() const { return window_count_; }  // that have ended
  const WindowTrace& trace() const { return trace_; }      // of the window kept
  // The trace as a file, see WindowTrace::ToJson(); `what` was measured, for its title.
  // FailedPrecondition when no window was kept, with how many there were.
  absl::StatusOr<std::string> ToJson(std::string_view what) const;

 private:
  bool IsWanted() const { return !index_ || *index_ == window_count_; }

  ModelRunner& runner_;
  const std::optional<uint64_t> index_;
  WindowTrace trace_;
  uint64_t window_count_ = 0;
  std::optional<uint64_t> kept_;  // number of the window kept
  int64_t begin_ns_ = 0;
  bool under_way_ = false;  // of one that is wanted
};

}  // namespace hearth
