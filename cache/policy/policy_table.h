// The policies by name: what each one is, and the numbers it runs with.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/policy/heat_model.h"
#include "cache/policy/pooled_policy.h"

namespace hearth {

enum class HeatKind { kForecast, kTwoScale, kRecency, kSeeded };

struct PolicyEntry {
  std::string_view name;
  std::string_view summary;  // one line for help and tables
  HeatKind heat = HeatKind::kTwoScale;
  TwoScaleOptions two_scale{};
  Admission admission{};
  // Swaps per layer and window that it is meant to run with; 0: every miss.
  uint32_t swaps_per_layer_max = 0;
};

std::span<const PolicyEntry> PolicyTable();            // the default first
const PolicyEntry* FindPolicy(std::string_view name);  // null when there is none

// A policy of these numbers. `shape` must be one that CreatePolicy() accepts.
std::unique_ptr<ResidencyPolicy> MakePolicy(const PolicyEntry& entry, const PoolShape& shape);

}  // namespace hearth
