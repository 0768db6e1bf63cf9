// Which misses of a layer are uploaded and which the CPU computes. Pure: costs and budgets in, a
// service for every expert of the plan out.
//
// The layer is over when the slower side is: with n of m RAM misses uploaded,
//   T(n) = max(cpu(m - n), pcie(n), dram(m))
// where both sides read the same DRAM. The n with the least T is taken, the smallest of equals, the
// hottest experts first. A share that the user gave is not weighed: as many are uploaded as it and
// the limits allow.
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

// One layer's times.
struct LayerMeasurement {
  uint32_t cpu_experts = 0;
  uint32_t cpu_rows = 0;  // of these experts, all of them
  int64_t cpu_ns = 0;
  uint32_t pcie_experts = 0;
  int64_t pcie_ns = 0;  // of the layer's uploads together
};
// Moves the averages towards a measurement, by at most a sixteenth of what was expected, so that a
// single outlier of any height moves them little. Sides that did nothing, or took no time, stay as
// they are. dram_expert_ns is not measured this way and stays.
void UpdateCosts(const LayerMeasurement& measured, ServiceCosts& costs);

// Costs of a layer's misses where both sides know beforehand how many of how many misses are
// streamed: running averages as above, of whole layers; 0: not known yet.
struct SplitCosts {
  double cpu_expert_ns = 0;
  double cpu_layer_ns = 0;
  double link_expert_ns = 0;
  double link_layer_ns = 0;
};
struct SplitMeasurement {
  uint32_t cpu_experts = 0;
  int64_t cpu_ns = 0;  // from the rows to the outputs
  uint32_t link_experts = 0;
  int64_t link_ns = 0;  // until the card had computed them
};
void UpdateSplit(const SplitMeasurement& measured, SplitCosts& costs);
// How many of 0, 1, ... misses are streamed: `share` of them, or with a negative share those for
// which the slower side takes least, none while costs are not known. Never fewer of more misses.
void SplitMisses(double share, const SplitCosts& costs, std::span<uint8_t> streamed);

struct ServiceLimits {
  double pcie_share = -1;        // of the RAM misses, 0 to 1; negative: whatever is best
  uint64_t pcie_bytes_left = 0;  // of this window
  uint64_t blob_bytes = 0;       // of this layer's experts
  uint32_t uploads_max = 0;      // free spare slots
  // Of this window's remaining uploads, those that may be made only to learn what an upload costs:
  // while that is not known, an automatic share uploads nothing else. The caller gives a window 1
  // of them and takes off what ChooseServices() returned.
  uint32_t probes_left = 0;
  // Uploading is taken to be the faster while the CPU's cost is not known: an automatic share
  // uploads all but a sixteenth then, the coldest, whose time tells.
  bool uploads_first = false;
};

// Of plan.experts, by index; empty: nothing is known.
struct MissHints {
  std::span<const float> heat;
  // 1: will be kept in VRAM, so that its upload is not for nothing.
  std::span<const uint8_t> wanted;
};

// Sets `service` of plan.experts from their residency: kVram and kNvme are what they are (kVram,
// kSsd); of those in RAM some become kPcie and the others kCpu. Returns the number of uploads.
// Experts that are wanted come first, then the hotter ones; equals by id. Never over a limit; with
// an automatic share and a cost that is not known, at most one upload, and that a probe. Uses
// plan.counts as working memory and allocates nothing where the plan was reserved.
uint32_t ChooseServices(std::span<const Residency> residency, const MissHints& hints,
                        const ServiceLimits& limits, const ServiceCosts& costs, WindowPlan& plan);

}  // namespace hearth
