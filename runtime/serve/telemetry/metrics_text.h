// A snapshot as Prometheus text, version 0.0.4: names in TELEMETRY.md. Counters are whole numbers,
// exact to 64 bits; a gauge that is not defined is left out.
#pragma once

#include <string>
#include <string_view>

#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string MetricsText(const TelemetrySnapshot& snapshot);

}  // namespace hearth
