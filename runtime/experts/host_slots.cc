#include "runtime/experts/host_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<HostSlots>> HostSlots::Create(std::span<const SlotPoolShape> pools,
                                                             const HostSlotsOptions& options) {
  std::unique_ptr<HostSlots> slots(new HostSlots(options));
  for (const SlotPoolShape& shape : pools) {
    const uint64_t bytes = shape.slot_bytes * shape.total_count();
    absl::StatusOr<AnonymousMapping> memory = AnonymousMapping::Create(bytes);
    if (!memory.ok()) {
      return Annotate(memory.status(),
                      absl::StrCat("slots in host memory, ", FormatBytes(bytes),
                                   "; a smaller --vram-budget or --slots takes less"));
    }
    slots->pools_.push_back({.memory = *std::move(memory), .slot_bytes = shape.slot_bytes});
  }
  slots->queue_.resize(std::max(options.uploads_max, 1u));
  slots->copier_ = std::thread([s = slots.get()] { s->CopyMain(); });
  return slots;
}

HostSlots::~HostSlots() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (copier_.joinable()) copier_.join();
}

std::span<std::byte> HostSlots::Bytes(SlotRef slot) const {
  const Pool& pool = pools_[slot.pool];
  return pool.memory.data().subspan(slot.slot.value * pool.slot_bytes, pool.slot_bytes);
}

uint64_t HostSlots::bytes() const {
  uint64_t total = 0;
  for (const Pool& pool : pools_) total += pool.memory.data().size();
  return total;
}

void HostSlots::Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
                       uint32_t index) {
  HEARTH_CHECK(from.size() <= pools_[slot.pool].slot_bytes);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_count_ < queue_.size(); });
  queue_[(queue_begin_ + queue_count_++) % queue_.size()] = {
      .slot = slot, .from = from, .sink = &sink, .index = index};
  changed_.notify_all();
}

void HostSlots::CopyMain() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return queue_count_ > 0 || stopping_; });
    if (queue_count_ == 0) return;
    const Copy copy = queue_[queue_begin_];
    lock.unlock();
    if (options_.before_copy) options_.before_copy();
    std::copy(copy.from.begin(), copy.from.end(), Bytes(copy.slot).begin());
    copy.sink->OnUploaded(copy.index, absl::OkStatus());
    lock.lock();
    queue_begin_ = (queue_begin_ + 1) % static_cast<uint32_t>(queue_.size());
    --queue_count_;
    changed_.notify_all();
  }
}

}  // namespace hearth
