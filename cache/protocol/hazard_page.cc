#include "cache/protocol/hazard_page.h"

#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint64_t kHazardMagic = 0x315A414848545248;  // "HRTHHAZ1" as bytes in order

struct HazardHeader {
  uint64_t magic;
  uint32_t count;
  uint32_t closed;       // atomic: 1 once the engine has dropped the page
  uint64_t reserved[6];  // zero
};
static_assert(sizeof(HazardHeader) == kSharedHeaderBytes);
static_assert(offsetof(HazardHeader, closed) == 12);
static_assert(std::has_unique_object_representations_v<HazardHeader>);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace

uint64_t HazardPage::BytesFor(uint32_t count) {
  return kSharedHeaderBytes + uint64_t{count} * sizeof(uint32_t);
}

HazardPage HazardPage::Format(std::span<std::byte> memory, uint32_t count) {
  HEARTH_CHECK(memory.size() == BytesFor(count));
  const HazardHeader header{kHazardMagic, count, 0, {}};
  std::memcpy(memory.data(), &header, sizeof(header));
  return HazardPage(memory, count);
}

absl::StatusOr<HazardPage> HazardPage::Attach(std::span<std::byte> memory, uint32_t count) {
  HazardHeader header{};
  if (memory.size() == BytesFor(count)) std::memcpy(&header, memory.data(), sizeof(header));
  if (header.magic != kHazardMagic || header.count != count) {
    return absl::FailedPreconditionError(absl::StrCat("hazard page: ", memory.size(), " bytes for ",
                                                      header.count, " words, expected ",
                                                      BytesFor(count), " bytes for ", count));
  }
  return HazardPage(memory, count);
}

std::atomic<uint32_t>& HazardPage::Word(uint32_t index) const {
  HEARTH_DCHECK(index < count_);
  std::byte* at = memory_.data() + kSharedHeaderBytes + uint64_t{index} * sizeof(uint32_t);
  return *reinterpret_cast<std::atomic<uint32_t>*>(at);
}

std::atomic<uint32_t>& HazardPage::Closed() const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(memory_.data() + offsetof(HazardHeader, closed));
}

std::optional<ArenaPlace> HazardPage::TryHold(uint32_t index, ExpertKey key,
                                              const ResidentDirectory& directory) {
  // Store, then look again. All four accesses (this store and load, the daemon's store of 0 to the
  // directory and its load of this word) are sequentially consistent, so they have one order. If
  // the second look still finds the place, it comes before the daemon's store, hence this store
  // comes before the daemon's load, which sees the hold. The look is also an acquire of the
  // publication: the bytes are there.
  for (ArenaPlace place = directory.Read(key); place.valid();) {
    Hold(index, place);
    const ArenaPlace again = directory.Read(key);
    if (again == place) return place;
    place = again;  // it moved or went in between: at most once per read of a whole expert
  }
  Drop(index);
  return std::nullopt;
}

bool HazardPage::Holds(uint32_t page) const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (Word(i).load(std::memory_order_seq_cst) == page + 1) return true;
  }
  return false;
}

uint32_t HazardPage::held_count() const {
  uint32_t held = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    held += Word(i).load(std::memory_order_relaxed) != 0 ? 1 : 0;
  }
  return held;
}

}  // namespace hearth
