#include "runtime/experts/expert_items.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

void ExpertItems::Add(const WindowPlan& plan, uint32_t index, uint32_t ranks,
                      const std::byte* blob) {
  const PlannedExpert& planned = plan.experts[index];
  for (uint32_t done = 0; done < planned.entry_count;) {
    const uint32_t rows = std::min(planned.entry_count - done, kExpertRowsMax);
    HEARTH_CHECK(item_count_ < items_.size() && entry_count_ + rows <= entries_.size());
    items_[item_count_++] = {.blob = blob, .entry_begin = entry_count_, .entry_count = rows};
    rows_max_ = std::max(rows_max_, rows);
    for (uint32_t i = 0; i < rows; ++i) {
      const RouteEntry& entry = plan.entries[planned.entry_begin + done + i];
      entries_[entry_count_++] = {.x_row = entry.row, .y_row = entry.row * ranks + entry.rank};
    }
    done += rows;
  }
}

}  // namespace hearth
