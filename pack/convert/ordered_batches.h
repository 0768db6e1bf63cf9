// Makes items on all workers of a team and takes them in order on one, with a bounded number in
// memory: while one bank of items is taken, the other is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/base/worker_team.h"

namespace hearth {

// Memory that the items of both banks may take together, whatever the model.
inline constexpr uint64_t kBatchBytesMax = 256_MiB;

// Items of one bank: two for each worker, fewer when they are large.
inline uint32_t BatchCount(const WorkerTeam& team, uint64_t item_bytes) {
  const uint64_t fitting = kBatchBytesMax / (2 * std::max<uint64_t>(item_bytes, 1));
  return static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, 2 * team.worker_count()));
}

// make(index, item) -> Status on any worker, items reused; take(index, item) -> Status in index
// order. The first error in index order ends it; items after it may have been made, none is taken.
template <class Item, class Make, class Take>
absl::Status ForEachInOrder(WorkerTeam& team, uint64_t count, uint32_t batch_count, Make&& make,
                            Take&& take) {
  struct Slot {
    Item item;
    absl::Status status;
  };
  struct Bank {
    std::vector<Slot> slots;
    uint64_t begin = 0;
    uint32_t count = 0;
  };
  std::array<Bank, 2> banks;
  for (Bank& bank : banks) bank.slots.resize(batch_count);

  const auto take_all = [&take](Bank& bank) -> absl::Status {
    for (uint32_t i = 0; i < bank.count; ++i) {
      HEARTH_RETURN_IF_ERROR(bank.slots[i].status);
      HEARTH_RETURN_IF_ERROR(take(bank.begin + i, bank.slots[i].item));
    }
    return absl::OkStatus();
  };
  uint64_t next = 0;
  for (uint32_t turn = 0;; ++turn) {
    Bank& filling = banks[turn % 2];
    Bank& full = banks[(turn + 1) % 2];
    filling.begin = next;
    filling.count = static_cast<uint32_t>(std::min<uint64_t>(batch_count, count - next));
    if (filling.count == 0 && full.count == 0) return absl::OkStatus();
    next += filling.count;
    absl::Status taken;
    team.ForEach(filling.count + 1, [&](uint32_t, uint32_t i) {
      if (i == 0) {
        taken = take_all(full);
      } else {
        Slot& slot = filling.slots[i - 1];
        slot.status = make(filling.begin + i - 1, slot.item);
      }
    });
    HEARTH_RETURN_IF_ERROR(taken);
    full.count = 0;
  }
}

}  // namespace hearth
