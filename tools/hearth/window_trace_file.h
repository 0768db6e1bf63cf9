// Writes the trace of the window that a command kept.
#pragma once

#include <string_view>

#include "absl/status/status.h"

#include "runtime/config/window_trace_config.h"
#include "runtime/engine/window_tracer.h"
#include "tools/hearth/command.h"

namespace hearth::cli {

// Whether the trace that is asked for, if any, can be written: for asking before long work.
absl::Status CheckTraceFile(const WindowTraceConfig& config);

// `what` was measured. Says on io.talk what was written, and what did not fit.
absl::Status WriteTraceFile(const WindowTraceConfig& config, const WindowTracer& tracer,
                            std::string_view what, const CommandIo& io);

}  // namespace hearth::cli
