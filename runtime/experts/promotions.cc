#include "runtime/experts/promotions.h"

#include <algorithm>
#include <utility>

namespace hearth {

Promotions::Promotions(const Deps& deps, uint32_t count_max) : deps_(deps), items_(count_max) {
  if (!deps_.store.takes_exchange()) return;
  uint64_t bytes = 0;
  for (const SlotPoolShape& pool : deps_.slots.pools()) bytes = std::max(bytes, pool.slot_bytes);
  victim_bytes_.resize(bytes);
}

Promotions::~Promotions() { Drain(); }

bool Promotions::IsIdle(const Item& item) {
  return item.state.load(std::memory_order_relaxed) == kIdle;
}

bool Promotions::has_room() const { return std::ranges::any_of(items_, IsIdle); }

bool Promotions::Start(const Swap& swap, ExpertLease source) {
  const auto idle = std::ranges::find_if(items_, IsIdle);
  if (idle == items_.end()) return false;
  const absl::StatusOr<SlotRef> slot = deps_.slots.BeginFill(swap.in);
  if (!slot.ok()) return false;
  deps_.slots.BeginSwap(swap);
  idle->swap = swap;
  idle->slot = *slot;
  idle->source = std::move(source);
  idle->state.store(kCopying, std::memory_order_relaxed);
  deps_.device.Upload(*slot, idle->source.bytes(), *this,
                      static_cast<uint32_t>(idle - items_.begin()));
  return true;
}

// Ordering: the copy is released here and acquired in Settle().
void Promotions::OnUploaded(uint32_t index, const absl::Status& status) {
  Item& item = items_[index];
  item.source = {};  // at once: a small RAM tier may be waiting for the block
  std::atomic<uint32_t>& state = item.state;
  state.store(status.ok() ? kCopied : kFailed, std::memory_order_release);
  state.notify_all();
}

void Promotions::Settle() {
  for (Item& item : items_) {
    const uint32_t state = item.state.load(std::memory_order_acquire);
    if (state == kCopied) {
      Land(item.slot, item.swap);
    } else if (state == kFailed) {
      deps_.slots.CancelSwap(item.swap);
      deps_.slots.Discard(item.slot);
    } else {
      continue;
    }
    item.state.store(kIdle, std::memory_order_relaxed);
  }
}

void Promotions::Drain() {
  for (Item& item : items_) item.state.wait(kCopying, std::memory_order_acquire);
  Settle();
}

void Promotions::Land(SlotRef slot, const Swap& swap) {
  if (!deps_.store.takes_exchange()) {
    deps_.slots.Land(slot, swap);
    deps_.store.Exchange(swap.in, swap.out, {});
    return;
  }
  // The lease keeps the victim's slot as it is until its bytes have been offered.
  const bool evicts = swap.out.layer.valid();
  const SlotLease victim = evicts ? deps_.slots.Acquire(swap.out) : SlotLease();
  deps_.slots.Land(slot, swap);
  std::span<const std::byte> bytes;
  if (victim.valid()) {
    const uint64_t blob_bytes = deps_.store.layout(swap.out.layer).blob_bytes();
    bytes = deps_.device.HostView(victim.ref());
    if (bytes.empty() &&
        deps_.device.Download(victim.ref(), std::span(victim_bytes_).first(blob_bytes)).ok()) {
      bytes = victim_bytes_;
    }
    if (!bytes.empty()) bytes = bytes.first(blob_bytes);
  }
  deps_.store.Exchange(swap.in, swap.out, bytes);
}

}  // namespace hearth
