// The choice of experts from the router's scores: top-k by value, ties to the lower index
// (cpu_kernels/ops/router.h), and the weights of the chosen (runtime/backend/cpu/route_weights.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"

namespace hearth {

inline constexpr uint32_t kRouterExpertsMax = 1024;
inline constexpr uint32_t kRouterRanksMax = 32;

// Ranks go by descending score. One warp for each row.
struct GpuRouterArgs {
  const float* logits = nullptr;  // (rows, expert_count)
  uint32_t* expert = nullptr;     // (rows, ranks)
  float* weight = nullptr;        // (rows, ranks); null: only the choice is wanted
  uint32_t* nan_flag = nullptr;   // set to 1 when any score is a NaN (else left as it is); the
                                  // choice is then in range, and otherwise meaningless
  uint32_t rows = 0;
  uint32_t expert_count = 0;  // 1 to kRouterExpertsMax
  uint32_t ranks = 0;         // 1 to min(kRouterRanksMax, expert_count)
  bool renormalise = true;    // softmax over the chosen scores, else over all
};

// Enqueues and returns.
absl::Status LaunchRouter(const GpuRouterArgs& args, CudaStreamView stream);

}  // namespace hearth
