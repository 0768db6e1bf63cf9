// What the layers of a pass asked for: the common coin of heat, profiles, replay and the tiers.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/ids.h"

namespace hearth {

// What kind of pass used the experts. A window counts as one sighting of each distinct expert,
// however many of its rows chose it; a prompt pass counts every entry, at a small weight.
enum class TrafficKind : uint8_t { kWindow = 0, kPrompt = 1 };

struct ExpertSighting {
  ExpertId expert;
  uint32_t entry_count = 0;  // route entries (row, rank) that chose it
};

struct LayerTraffic {
  LayerId layer;
  std::span<const ExpertSighting> experts;  // distinct, by ascending id
  TrafficKind kind = TrafficKind::kWindow;
};

}  // namespace hearth
