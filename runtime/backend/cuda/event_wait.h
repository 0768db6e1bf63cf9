// A bounded wait of the host for a point in the card's work.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "runtime/base/clock.h"

namespace hearth {

// Spins. An error of the card's work; DeadlineExceeded, with `what`, when it takes longer than
// `wait_ns_max`.
absl::Status AwaitEvent(const UniqueEvent& event, Clock& clock, int64_t wait_ns_max,
                        std::string_view what);

}  // namespace hearth
