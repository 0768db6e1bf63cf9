// A card's slots: how many bytes they may take, the cache over them and the memory behind it. Too
// little memory is met by fewer slots, not by failing, as long as half of what was planned is left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

struct VramRoom {
  uint64_t free_bytes = 0;                       // once everything else is allocated
  uint64_t reserve_bytes = uint64_t{512} << 20;  // left for others: --vram-reserve
  uint64_t slot_bytes() const {                  // what slots may take
    return free_bytes > reserve_bytes ? free_bytes - reserve_bytes : 0;
  }
};

struct VramSlots {
  std::unique_ptr<SlotCache> cache;
  std::unique_ptr<SlotDevice> device;  // its slots are the cache's pools
  std::vector<std::string> notes;      // what is not as it was asked for
};

// Makes the memory of these pools; ResourceExhausted or DataLoss: fewer may do.
using MakeSlotDevice = std::function<absl::StatusOr<std::unique_ptr<SlotDevice>>(
    std::span<const SlotPoolShape> pools)>;

// The budget of `options`, capped by the room: without a budget, all of the room. Where the memory
// cannot be had, or fails its check, it is tried again with a twentieth less, down to half; then it
// is ResourceExhausted (or what was wrong with the memory), naming what was tried.
absl::StatusOr<VramSlots> OpenVramSlots(SlotCacheOptions options, const VramRoom& room,
                                        const MakeSlotDevice& make);

}  // namespace hearth
