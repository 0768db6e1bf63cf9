// Which misses of a layer are uploaded and which the CPU computes. Pure: costs and budgets in, a
// service for every expert of the plan out.
//
// The layer is over when the slower side is: with n of m RAM misses uploaded,
//   T(n) = max(cpu(m - n), pcie(n), dram(m))
// where both sides read the same DRAM. The n with the least T is taken, the smallest of equals, the
// hottest experts first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/plan/window_plan.h"

namespace hearth {

// Running costs, nanoseconds; every one a moving average of what was measured. 0: not known yet.
struct ServiceCosts {
  double cpu_expert_ns = 0;   // one expert, one row, all workers
  double cpu_row_ns = 0;      // each further row of it
  double pcie_expert_ns = 0;  // upload of one expert
  double pcie_layer_ns = 0;   // what an upload costs a layer besides
  double dram_expert_ns = 0;  // reading one expert from memory, at the machine's full rate
};

// Moves the averages towards one layer's measurement.
struct LayerMeasurement {
  uint32_t cpu_experts = 0;
  uint32_t cpu_rows = 0;  // of these experts, all of them
  int64_t cpu_ns = 0;
  uint32_t pcie_experts = 0;
  int64_t pcie_ns = 0;
};
void UpdateCosts(const LayerMeasurement& measured, ServiceCosts& costs);

struct ServiceLimits {
  double pcie_share = -1;        // of the RAM misses, 0 to 1; negative: whatever is best
  uint64_t pcie_bytes_left = 0;  // of this window
  uint64_t blob_bytes = 0;       // of this layer's experts
  uint32_t uploads_max = 0;      // free spare slots
};

struct MissHints {
  std::span<const float> heat;  // of plan.experts, by index
  std::span<const uint8_t>
      wanted;  // 1: will be kept in VRAM, so that its upload is not for nothing
};

// Sets `service` of plan.experts from their residency: kVram and kNvme are what they are (kVram,
// kSsd); of those in RAM some become kPcie and the others kCpu. Returns the number of uploads.
// Experts that are wanted come first, then the hotter ones; equals by id. Never over a limit.
uint32_t ChooseServices(std::span<const Residency> residency, const MissHints& hints,
                        const ServiceLimits& limits, const ServiceCosts& costs, WindowPlan& plan);

}  // namespace hearth
