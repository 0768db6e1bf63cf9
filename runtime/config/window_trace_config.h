// Which window's trace is written, and where: what run, score and bench window share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/config/field.h"

namespace hearth {

struct WindowTraceConfig {
  std::string trace_window;
  std::optional<uint64_t> trace_window_index;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("trace_window", trace_window, "trace of one window to write, for Perfetto",
      {.metavar = "FILE"});
    v("trace_window_index", trace_window_index, "which window, from 0; none: the last one");
  }

  // A field without effect.
  absl::Status Validate(const GivenFields& given) const {
    if (!given.Has("trace_window_index") || !trace_window.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("trace_window_index: has no effect without trace_window");
  }
};

}  // namespace hearth
