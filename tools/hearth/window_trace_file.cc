#include "tools/hearth/window_trace_file.h"

#include "absl/strings/str_format.h"

#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"

namespace hearth::cli {

absl::Status CheckTraceFile(const WindowTraceConfig& config) {
  if (config.trace_window.empty()) return absl::OkStatus();
  return Annotate(CheckReplaceable(config.trace_window), "trace_window");
}

absl::Status WriteTraceFile(const WindowTraceConfig& config, const WindowTracer& tracer,
                            std::string_view what, const CommandIo& io) {
  const absl::StatusOr<std::string> json = tracer.ToJson(what);
  if (!json.ok()) return Annotate(json.status(), "trace_window");
  HEARTH_RETURN_IF_ERROR(ReplaceFile(config.trace_window, *json));
  io.talk << absl::StrFormat("%s: %d spans", config.trace_window, tracer.trace().span_count());
  if (const uint64_t dropped = tracer.trace().dropped_count(); dropped != 0) {
    io.talk << absl::StrFormat(", %d more found no room", dropped);
  }
  io.talk << "; opens in ui.perfetto.dev\n";
  return absl::OkStatus();
}

}  // namespace hearth::cli
