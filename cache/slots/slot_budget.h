// How large the card's expert cache is: a budget shared out between the pools, before anything is
// allocated. Pure: numbers in, pools out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"

namespace hearth {

// Exactly one of the three is not zero, or all are (no slots).
struct SlotBudget {
  uint64_t bytes = 0;       // of all pools with their spares
  uint64_t slot_count = 0;  // of all pools, spares not counted
  double share = 0;         // of all experts, (0, 1]
};

struct SlotPoolShape {
  uint64_t slot_bytes = 0;   // a multiple of kSlotAlignBytes
  uint32_t slot_count = 0;   // experts held at most
  uint32_t spare_count = 0;  // 0 when slot_count is; with slot_count at most all experts
  std::vector<LayerId> layers;
  uint32_t total_count() const { return slot_count + spare_count; }
  uint64_t total_bytes() const { return total_count() * slot_bytes; }
};

inline constexpr uint64_t kSlotAlignBytes = 256;  // what a card's allocator aligns to

struct SlotDemand {
  std::vector<uint64_t> blob_bytes;  // of each layer's experts: layers of equal bytes share a pool
  uint32_t expert_count = 0;         // per layer
  uint32_t spare_count = 0;          // of a pool, at most
};

struct SlotPlan {
  std::vector<SlotPoolShape> pools;  // by first layer
  std::vector<std::string> notes;    // where the budget could not be followed to the letter
};

// Each pool gets the share of its experts that the others get, down to whole slots; what bytes are
// left then goes to the pools that hold least. A pool that holds every expert needs no spares.
// InvalidArgument for a budget or demand that is not one; ResourceExhausted for bytes that hold no
// slot and its spares, with the least that would.
absl::StatusOr<SlotPlan> ShareSlots(const SlotBudget& budget, const SlotDemand& demand);

// The spares of a pool of `slot_count` slots for `expert_total` experts: a few, or a 64th of them.
uint32_t SpareCount(uint32_t slot_count, uint32_t expert_total, uint32_t spare_count_max);

}  // namespace hearth
