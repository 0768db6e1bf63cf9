// Which processor runs the dense path and holds the slots: a card, or the CPU with a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/arithmetic.h"
#include "runtime/config/compute_config.h"

namespace hearth {

struct DeviceNeeds {
  uint64_t card_bytes = 0;  // dense weights, buffers and one sequence; without slots
  Arithmetic arithmetic = Arithmetic::kFast;
};

struct DeviceChoice {
  std::optional<GpuInfo> gpu;  // none: the CPU
  std::string reason;          // of this choice, a sentence for the user
};

// Oldest architecture that the kernels' tensor-core and copy instructions exist on: Ampere.
inline constexpr uint32_t kOldestSm = 80;

// Pure. `gpus` as ListGpus() answered. With kCuda what keeps a card from being used is an error:
// Unavailable for no driver, an older driver or no card; NotFound for an index that is not there;
// FailedPrecondition for a card or an arithmetic that cannot do it; ResourceExhausted for too
// little memory. With kAuto it is the reason for the CPU.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSetting& request,
                                          const absl::StatusOr<GpuList>& gpus,
                                          const DeviceNeeds& needs);

}  // namespace hearth
