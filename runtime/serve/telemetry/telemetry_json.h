// A snapshot as JSON, and back: schema "hearth.telemetry" 1, see TELEMETRY.md. Rates that are not
// defined are null; there is no NaN and no infinity.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth {

inline constexpr int kTelemetrySchemaVersion = 1;

// One line without a newline in it; about 30 KB for 49 layers.
std::string TelemetryJson(const TelemetrySnapshot& snapshot);

// What TelemetryJson() made, with what it tells besides the numbers left out. InvalidArgument names
// the member that is wrong; FailedPrecondition: a newer schema. Members that are not known are
// passed over. Bounded: at most 4 MiB, 1,024 layers.
absl::StatusOr<TelemetrySnapshot> ParseTelemetry(std::string_view json);

}  // namespace hearth
