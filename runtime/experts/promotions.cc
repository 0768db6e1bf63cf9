#include "runtime/experts/promotions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/experts/bounded_wait.h"

namespace hearth {

Promotions::Promotions(const Deps& deps, uint32_t count_max, int64_t wait_ns)
    : deps_(deps), wait_ns_(wait_ns), items_(count_max) {}

// The device writes to what is gone afterwards unless it has answered.
Promotions::~Promotions() { HEARTH_CHECK(Drain().ok()); }

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
  idle->bytes = idle->source.bytes().size();
  idle->begin_ns = deps_.clock.NowNs();
  idle->state.store(kCopying, std::memory_order_relaxed);
  deps_.device.Upload(*slot, idle->source.bytes(), *this,
                      static_cast<uint32_t>(idle - items_.begin()));
  return true;
}

// Ordering: the copy is released here and acquired in Settle().
void Promotions::OnUploaded(uint32_t index, const absl::Status& status) {
  Item& item = items_[index];
  item.end_ns = deps_.clock.NowNs();
  item.source = {};  // at once: a small RAM tier may be waiting for the block
  std::atomic<uint32_t>& state = item.state;
  state.store(status.ok() ? kCopied : kFailed, std::memory_order_release);
}

void Promotions::Trace(const Item& item, int64_t end_ns) {
  if (trace_ == nullptr) return;
  trace_->Add({.name = "promotion",
               .lane = TraceLane::kCopy,
               .begin_ns = item.begin_ns,
               .end_ns = end_ns,
               .layer = item.swap.in.layer,
               .expert = item.swap.in.expert,
               .bytes = item.bytes});
}

void Promotions::set_trace(WindowTrace* trace) {
  if (trace == nullptr) {
    const int64_t now_ns = deps_.clock.NowNs();
    for (const Item& item : items_) {
      if (item.state.load(std::memory_order_acquire) != kIdle) Trace(item, now_ns);
    }
  }
  trace_ = trace;
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
    Trace(item, item.end_ns);
    item.state.store(kIdle, std::memory_order_relaxed);
  }
}

absl::Status Promotions::Drain() {
  absl::Status status;
  for (Item& item : items_) {
    const auto answered = [&] { return item.state.load(std::memory_order_acquire) != kCopying; };
    if (AwaitFor(deps_.clock, status.ok() ? wait_ns_ : 0, answered)) continue;
    status.Update(absl::DeadlineExceededError(
        absl::StrCat("slot ", item.slot.slot.value, " of pool ", item.slot.pool, ": ",
                     ToAbsl(deps_.device.name()), " has not answered an upload within ",
                     wait_ns_ / 1'000'000, " ms; restart")));
  }
  Settle();
  return status;
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
    // Bytes that cannot be read are not offered: RAM reads the victim from the drive when needed.
    const auto read = deps_.device.Read(victim.ref(), blob_bytes);
    if (read.ok()) bytes = *read;
  }
  deps_.store.Exchange(swap.in, swap.out, bytes);
}

}  // namespace hearth
