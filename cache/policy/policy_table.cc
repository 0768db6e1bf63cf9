#include "cache/policy/policy_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// POLICIES.md has the measurements behind these numbers.
constexpr std::array<PolicyEntry, 6> kPolicies = {{
    {.name = "forecast",
     .summary = "most likely to be used in the next 16 tokens; learns how sticky routing is",
     .heat = HeatKind::kForecast,
     .admission = {.ratio = 1.05f, .hysteresis = 0.05f},
     .swaps_per_layer_max = 2},
    {.name = "two-scale",
     .summary = "counts of 10 and of 400 tokens; moves little",
     .two_scale = {.fast_keep = 0.9f, .slow_keep = 0.9975f, .fast_weight = 4},
     .admission = {.ratio = 1.1f, .hysteresis = 0.3f},
     .swaps_per_layer_max = 2},
    {.name = "lru",
     .summary = "the least recently used goes, every miss comes",
     .heat = HeatKind::kRecency},
    {.name = "lfu",
     .summary = "the least often used goes",
     .two_scale = {.fast_keep = 0, .slow_keep = 1, .fast_weight = 0}},
    {.name = "decay",
     .summary = "counts that lose 2% with every token",
     .two_scale = {.fast_keep = 0, .slow_keep = 0.98f, .fast_weight = 0},
     .admission = {.ratio = 1, .hysteresis = 0.3f}},
    {.name = "static",
     .summary = "what the profile says stays; no swaps",
     .heat = HeatKind::kSeeded,
     .admission = {.evicts = false}},
}};

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto ends = std::ranges::mismatch(a, b);
  return static_cast<size_t>(ends.in1 - a.begin());
}

absl::Status CheckShape(const PoolShape& shape) {
  std::vector<bool> seen(shape.layer_count);
  for (const LayerId layer : shape.layers) {
    if (layer.value >= shape.layer_count || seen[layer.value]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layers: found ", layer.value, ", expected distinct layers below ", shape.layer_count));
    }
    seen[layer.value] = true;
  }
  const uint64_t experts = uint64_t{shape.expert_count} * shape.layers.size();
  if (experts == 0) return absl::InvalidArgumentError("layers: a pool has at least one expert");
  if (uint64_t{shape.layer_slots_min} * shape.layers.size() > shape.slot_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer_slots_min: found ", shape.layer_slots_min, ", expected at most ",
        shape.slot_count / shape.layers.size(), ", an even share of ", shape.slot_count, " slots"));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const PolicyEntry> PolicyTable() { return kPolicies; }

const PolicyEntry* FindPolicy(std::string_view name) {
  const auto found = std::ranges::find(kPolicies, name, &PolicyEntry::name);
  return found == kPolicies.end() ? nullptr : &*found;
}

std::unique_ptr<ResidencyPolicy> MakePolicy(const PolicyEntry& entry, const PoolShape& shape) {
  const HeatShape heat_shape = HeatShapeOf(shape);
  std::unique_ptr<HeatModel> heat;
  switch (entry.heat) {
    case HeatKind::kForecast:
      heat = MakeForecastHeat(heat_shape);
      break;
    case HeatKind::kTwoScale:
      heat = MakeTwoScaleHeat(heat_shape, entry.two_scale);
      break;
    case HeatKind::kRecency:
      heat = MakeRecencyHeat(heat_shape);
      break;
    case HeatKind::kSeeded:
      heat = MakeSeededHeat(heat_shape);
      break;
  }
  return MakePooledPolicy(std::string(entry.name), shape, entry.admission, std::move(heat));
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<std::unique_ptr<ResidencyPolicy>> CreatePolicy(std::string_view name,
                                                              const PoolShape& shape) {
  const PolicyEntry* const entry = FindPolicy(name);
  if (entry == nullptr) {
    std::vector<std::string> names = PolicyNames();
    std::ranges::stable_sort(names, std::ranges::greater{},
                             [&](const std::string& n) { return CommonPrefix(n, name); });
    return absl::NotFoundError(absl::StrCat("policy: found '", ToAbsl(name), "', expected one of ",
                                            absl::StrJoin(names, ", ")));
  }
  HEARTH_RETURN_IF_ERROR(CheckShape(shape));
  return MakePolicy(*entry, shape);
}

}  // namespace hearth
