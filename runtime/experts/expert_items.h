// Experts of a plan as a card's kernels take them: items of few rows each, and their entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_kernels/ops/expert_ffn.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

// A list under construction in memory of somebody else's.
class ExpertItems {
 public:
  ExpertItems(std::span<ExpertFfnItem> items, std::span<ExpertFfnEntry> entries)
      : items_(items), entries_(entries) {}
  void Clear() { item_count_ = entry_count_ = rows_max_ = 0; }
  // One expert of the plan, whose blob the card reads at `blob`: cut into items of at most
  // kExpertRowsMax rows. Entry (row, rank) reads row `row` and writes row * ranks + rank.
  void Add(const WindowPlan& plan, uint32_t index, uint32_t ranks, const std::byte* blob);

  std::span<const ExpertFfnItem> items() const { return items_.first(item_count_); }
  std::span<const ExpertFfnEntry> entries() const { return entries_.first(entry_count_); }
  uint32_t rows_max() const { return rows_max_; }  // most rows of any item

  // The most items that a pass of these rows can have, and of one expert.
  static uint32_t ItemsMax(uint32_t rows, uint32_t ranks) { return rows * ranks; }
  static uint32_t ItemsOfExpertMax(uint32_t rows) {
    return (rows + kExpertRowsMax - 1) / kExpertRowsMax;
  }

 private:
  std::span<ExpertFfnItem> items_;
  std::span<ExpertFfnEntry> entries_;
  uint32_t item_count_ = 0;
  uint32_t entry_count_ = 0;
  uint32_t rows_max_ = 0;
};

}  // namespace hearth
