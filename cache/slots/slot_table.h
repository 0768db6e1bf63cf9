// Which expert is in which slot of one pool, who holds a slot, and which slots are free. Knows
// neither heat nor policies. A slot is always in exactly one state:
//
//   free -> filling -> resident -> leaving -> free        (leaving: evicted, but still held)
//             `-> free (discarded)      free -> retired   (the pool has been lowered)
//
// An expert is in at most one slot that is filling or resident. Used by one thread, but Release()
// and generation() may be called from any: a slot that is given back is seen by the next Reclaim().
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace hearth {

enum class SlotState : uint8_t { kFree, kFilling, kResident, kLeaving, kRetired };

struct SlotCounts {  // by state; they add up to the slots that the pool was made with
  uint32_t free = 0;
  uint32_t filling = 0;
  uint32_t resident = 0;
  uint32_t leaving = 0;
  uint32_t retired = 0;
};

class SlotTable {
 public:
  // `layers`: whose experts the pool holds, of `layer_count`. Allocates here only.
  SlotTable(std::span<const LayerId> layers, uint32_t layer_count, uint32_t expert_count,
            uint32_t total_count);

  // The slot that `key` is in or on its way into; invalid: none.
  SlotId Find(ExpertKey key) const { return place_[IndexOf(key)]; }
  bool resident(ExpertKey key) const {
    const SlotId slot = Find(key);
    return slot.valid() && slots_[slot.value].state == SlotState::kResident;
  }
  SlotState state(SlotId slot) const { return slots_[slot.value].state; }
  ExpertKey key(SlotId slot) const { return slots_[slot.value].key; }  // unless free or retired

  // `slot` is resident. Every Hold() is followed by one Release().
  void Hold(SlotId slot);
  void Release(SlotId slot);

  SlotId BeginFill(ExpertKey key);  // `key` has no slot; invalid: none is free
  void Land(SlotId slot);           // filling -> resident
  void Discard(SlotId slot);        // filling -> free
  void Evict(SlotId slot);          // resident -> free, or leaving when it is held
  void Reclaim();                   // leaving slots that nobody holds any more -> free
  // `count` slots fewer: free ones at once, others as they become free.
  void Retire(uint32_t count);

  // How often the slot has been given a new expert.
  uint64_t generation(SlotId slot) const {
    return slots_[slot.value].generation.load(std::memory_order_acquire);
  }
  SlotCounts counts() const { return counts_; }
  uint32_t total_count() const { return static_cast<uint32_t>(slots_.size()); }
  // Free slots, with those that Reclaim() would free.
  uint32_t available_count() const;
  uint64_t hold_count() const;  // of all slots

 private:
  struct Slot {
    std::atomic<uint32_t> holders{0};
    std::atomic<uint64_t> generation{0};
    ExpertKey key;
    SlotState state = SlotState::kFree;
  };

  uint32_t IndexOf(ExpertKey key) const;
  void Free(SlotId slot);
  // Ordering: a reader's Release() releases, so that what it read came before the next fill.
  bool held(SlotId slot) const {
    return slots_[slot.value].holders.load(std::memory_order_acquire) != 0;
  }

  const uint32_t expert_count_;
  std::vector<uint32_t> layer_begin_;  // of place_, by layer; UINT32_MAX: of another pool
  std::vector<SlotId> place_;          // by layer of the pool and expert
  std::vector<Slot> slots_;
  std::vector<SlotId> free_;
  std::vector<SlotId> leaving_;
  SlotCounts counts_;
  uint32_t to_retire_count_ = 0;
};

}  // namespace hearth
