#include "runtime/experts/vram_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr double kShrink = 0.95;
constexpr double kLeastShare = 0.5;

bool IsEmpty(const SlotBudget& budget) {
  return budget.bytes == 0 && budget.slot_count == 0 && budget.share == 0;
}

bool FewerMayDo(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kDataLoss;
}

}  // namespace

absl::StatusOr<VramSlots> OpenVramSlots(SlotCacheOptions options, const VramRoom& room,
                                        const MakeSlotDevice& make) {
  VramSlots slots;
  const uint64_t room_bytes = room.slot_bytes();
  const std::string has =
      absl::StrCat("the card has ", FormatBytes(room.free_bytes), " free, of which ",
                   FormatBytes(room.reserve_bytes), " are reserved (--vram-reserve)");
  if (IsEmpty(options.budget)) {
    if (room_bytes == 0) return absl::ResourceExhaustedError(absl::StrCat("slots: ", has));
    options.budget = {.bytes = room_bytes};
  }
  HEARTH_ASSIGN_OR_RETURN(slots.cache, SlotCache::Create(options));
  const uint64_t wanted_bytes = slots.cache->bytes();
  uint64_t bytes = std::min(wanted_bytes, room_bytes);
  if (bytes < wanted_bytes) {
    slots.notes.push_back(
        absl::StrCat("slots: ", FormatBytes(wanted_bytes), " were asked for; ", has));
    if (bytes == 0) return absl::ResourceExhaustedError(slots.notes.back());
  }
  const uint64_t first_bytes = bytes;
  const auto least_bytes = static_cast<uint64_t>(static_cast<double>(bytes) * kLeastShare);
  for (absl::Status status;;) {
    if (bytes < wanted_bytes) {
      options.budget = {.bytes = bytes};
      absl::StatusOr<std::unique_ptr<SlotCache>> cache = SlotCache::Create(options);
      if (!cache.ok()) return status.ok() ? cache.status() : status;  // too few for a slot
      slots.cache = *std::move(cache);
    }
    absl::StatusOr<std::unique_ptr<SlotDevice>> device = make(slots.cache->pools());
    if (device.ok()) {
      slots.device = *std::move(device);
      if (!status.ok()) {
        slots.notes.push_back(absl::StrCat("slots: ", FormatBytes(bytes), " instead of ",
                                           FormatBytes(first_bytes), ": ", status.message()));
      }
      return slots;
    }
    if (!FewerMayDo(device.status())) return device.status();
    if (status.ok()) status = device.status();
    const auto fewer_bytes = static_cast<uint64_t>(static_cast<double>(bytes) * kShrink);
    if (fewer_bytes < least_bytes) {
      return Annotate(status, absl::StrCat("slots: not even ", FormatBytes(bytes), " of ",
                                           FormatBytes(first_bytes), " can be had; ", has,
                                           "; a smaller --vram-budget may do"));
    }
    bytes = fewer_bytes;
  }
}

}  // namespace hearth
