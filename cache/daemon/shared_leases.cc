#include "cache/daemon/shared_leases.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<SharedLeases>> SharedLeases::Create(
    ResidentDirectory::Shape shape, std::span<const std::byte> arena) {
  HEARTH_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("hearthd directory", ResidentDirectory::BytesFor(shape),
                           SharedWriting::kNobody));
  return std::unique_ptr<SharedLeases>(new SharedLeases(std::move(memory), shape, arena));
}

SharedLeases::SharedLeases(SharedMemory memory, ResidentDirectory::Shape shape,
                           std::span<const std::byte> arena)
    : memory_(std::move(memory)),
      shape_(shape),
      arena_(arena),
      directory_(ResidentDirectory::Format(memory_.data(), shape)),
      generations_(size_t{shape.layer_count} * shape.expert_count) {}

ArenaPlace SharedLeases::Publish(BlockId block, ExpertKey key, std::span<const std::byte> bytes) {
  const auto offset_bytes = static_cast<uint64_t>(bytes.data() - arena_.data());
  HEARTH_CHECK(offset_bytes % kArenaPageBytes == 0 && offset_bytes < arena_.size());
  const std::lock_guard lock(mutex_);
  if (block.value >= shown_.size()) shown_.resize(size_t{block.value} + 1);
  Shown& shown = shown_[block.value];
  if (shown.place.valid()) {
    HEARTH_CHECK(shown.key == key);  // it changes hands only through HeldElsewhere()
    return shown.place;
  }
  uint32_t& generation =
      generations_[size_t{key.layer.value} * shape_.expert_count + key.expert.value];
  shown = {
      key,
      {.page = static_cast<uint32_t>(offset_bytes / kArenaPageBytes), .generation = ++generation}};
  directory_.Publish(key, shown.place);
  return shown.place;
}

bool SharedLeases::AnyHolds(uint32_t page) const {
  return std::any_of(pages_.begin(), pages_.end(),
                     [page](const HazardPage* p) { return p->Holds(page); });
}

bool SharedLeases::HeldElsewhere(BlockId block) {
  const std::lock_guard lock(mutex_);
  if (block.value >= shown_.size()) return false;
  Shown& shown = shown_[block.value];
  if (!shown.place.valid()) return false;
  // The first look only spares engines a gap in the directory; the second decides.
  if (AnyHolds(shown.place.page)) return true;
  directory_.TakeOut(shown.key);
  if (AnyHolds(shown.place.page)) {
    directory_.Publish(shown.key, shown.place);
    return true;
  }
  shown.place = ArenaPlace();
  return false;
}

void SharedLeases::AddPage(const HazardPage& page) {
  const std::lock_guard lock(mutex_);
  pages_.push_back(&page);
}

void SharedLeases::RemovePage(const HazardPage& page) {
  const std::lock_guard lock(mutex_);
  std::erase(pages_, &page);
}

}  // namespace hearth
