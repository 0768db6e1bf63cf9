// What a server measured, beside what was planned for it: memory, rates of its channels, hits and
// speed. Pure.
#pragma once

#include <optional>
#include <vector>

#include "runtime/serve/telemetry/telemetry_snapshot.h"
#include "tools/hearth/doctor/findings.h"
#include "tools/hearth/plan/speed_plan.h"

namespace hearth::cli {

// `planned` is of the pack that the server serves, on the machine as it is: none where no pack was
// given; then only what the snapshot itself promises is compared.
std::vector<Finding> CompareWithTelemetry(const TelemetrySnapshot& snapshot,
                                          const std::optional<SpeedPlan>& planned);

}  // namespace hearth::cli
