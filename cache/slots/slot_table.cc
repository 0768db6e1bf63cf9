#include "cache/slots/slot_table.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

SlotTable::SlotTable(std::span<const LayerId> layers, uint32_t layer_count, uint32_t expert_count,
                     uint32_t total_count)
    : expert_count_(expert_count),
      layer_begin_(layer_count, UINT32_MAX),
      place_(layers.size() * expert_count),
      slots_(total_count) {
  for (uint32_t i = 0; i < layers.size(); ++i) layer_begin_[layers[i].value] = i * expert_count;
  free_.reserve(total_count);
  leaving_.reserve(total_count);
  for (uint32_t s = total_count; s > 0; --s) free_.push_back(SlotId(s - 1));  // the lowest first
  counts_.free = total_count;
}

uint32_t SlotTable::IndexOf(ExpertKey key) const {
  HEARTH_CHECK(key.layer.value < layer_begin_.size());
  HEARTH_CHECK(key.expert.value < expert_count_);
  const uint32_t begin = layer_begin_[key.layer.value];
  HEARTH_CHECK(begin != UINT32_MAX);
  return begin + key.expert.value;
}

void SlotTable::Hold(SlotId slot) {
  Slot& s = slots_[slot.value];
  HEARTH_CHECK(s.state == SlotState::kResident);
  s.holders.fetch_add(1, std::memory_order_relaxed);
}

void SlotTable::Release(SlotId slot) {
  const uint32_t before = slots_[slot.value].holders.fetch_sub(1, std::memory_order_release);
  HEARTH_CHECK(before > 0);
}

SlotId SlotTable::BeginFill(ExpertKey key) {
  SlotId& place = place_[IndexOf(key)];
  HEARTH_CHECK(!place.valid());
  if (free_.empty()) return SlotId();
  place = free_.back();
  free_.pop_back();
  Slot& s = slots_[place.value];
  HEARTH_CHECK(s.state == SlotState::kFree);
  HEARTH_CHECK(!held(place));
  s.state = SlotState::kFilling;
  s.key = key;
  s.generation.fetch_add(1, std::memory_order_acq_rel);
  --counts_.free;
  ++counts_.filling;
  return place;
}

void SlotTable::Land(SlotId slot) {
  Slot& s = slots_[slot.value];
  HEARTH_CHECK(s.state == SlotState::kFilling);
  s.state = SlotState::kResident;
  --counts_.filling;
  ++counts_.resident;
}

void SlotTable::Discard(SlotId slot) {
  Slot& s = slots_[slot.value];
  HEARTH_CHECK(s.state == SlotState::kFilling);
  place_[IndexOf(s.key)] = SlotId();
  --counts_.filling;
  Free(slot);
}

void SlotTable::Evict(SlotId slot) {
  Slot& s = slots_[slot.value];
  HEARTH_CHECK(s.state == SlotState::kResident);
  place_[IndexOf(s.key)] = SlotId();
  --counts_.resident;
  if (!held(slot)) {
    Free(slot);
    return;
  }
  s.state = SlotState::kLeaving;
  leaving_.push_back(slot);
  ++counts_.leaving;
}

void SlotTable::Reclaim() {
  size_t kept = 0;
  for (const SlotId slot : leaving_) {
    if (held(slot)) {
      leaving_[kept++] = slot;
    } else {
      --counts_.leaving;
      Free(slot);
    }
  }
  leaving_.resize(kept);
}

void SlotTable::Free(SlotId slot) {
  Slot& s = slots_[slot.value];
  if (to_retire_count_ > 0) {
    --to_retire_count_;
    s.state = SlotState::kRetired;
    ++counts_.retired;
    return;
  }
  s.state = SlotState::kFree;
  free_.push_back(slot);
  ++counts_.free;
}

void SlotTable::Retire(uint32_t count) {
  HEARTH_CHECK(counts_.retired + to_retire_count_ + count <= total_count());
  to_retire_count_ += count;
  while (to_retire_count_ > 0 && !free_.empty()) {
    slots_[free_.back().value].state = SlotState::kRetired;
    free_.pop_back();
    --counts_.free;
    ++counts_.retired;
    --to_retire_count_;
  }
}

uint32_t SlotTable::available_count() const {
  uint32_t reclaimable = 0;
  for (const SlotId slot : leaving_) reclaimable += held(slot) ? 0 : 1;
  return counts_.free + reclaimable - std::min(reclaimable, to_retire_count_);
}

uint64_t SlotTable::hold_count() const {
  uint64_t count = 0;
  for (const Slot& s : slots_) count += s.holders.load(std::memory_order_acquire);
  return count;
}

}  // namespace hearth
