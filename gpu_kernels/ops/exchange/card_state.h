// What the exchange keeps in the card's own memory.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/card_claims.h"
#include "gpu_kernels/ops/expert_ffn.h"

namespace hearth {

struct ListCounts {
  uint32_t items = 0;
  uint32_t entries = 0;
};

struct CardState {
  uint32_t sequence = 0;  // of the window under way
  uint32_t failed = 0;    // 1: a wait of the window has failed or the host gave it up
  uint32_t flags = 0;     // what follows the layer's hits, as in the header of a list
  // Whether the host wants the rows of a layer: layer * 2 + 1, or + 0 if not; another layer's: not
  // known yet.
  uint32_t rows_wanted = kRowsNotDecided;
  ListCounts hits;
  ListCounts late;
  uint32_t streams_left = 0;  // of the window, see ClaimFinder
  uint32_t unused = 0;
  StreamRule rule;
  uint64_t outputs_seen = 0;  // sequence << 32 | layer + 1: of the layer whose outputs are there

  static constexpr uint32_t kRowsNotDecided = UINT32_MAX;
};
static_assert(sizeof(CardState) == 184);

struct CardLayout {  // CardState at 0; sections at multiples of 128
  uint64_t hit_items_offset_bytes = 0;
  uint64_t hit_entries_offset_bytes = 0;
  uint64_t late_items_offset_bytes = 0;
  uint64_t late_entries_offset_bytes = 0;
  uint64_t on_card_offset_bytes = 0;
  uint64_t table_offset_bytes = 0;  // (layer_count, expert_count) addresses
  uint64_t bytes = 0;
};

constexpr CardLayout LayOutCard(uint32_t entries_max, uint32_t table_count) {
  const auto round_up = [](uint64_t bytes) { return (bytes + 127) / 128 * 128; };
  const uint64_t items_bytes = round_up(uint64_t{entries_max} * sizeof(ExpertFfnItem));
  const uint64_t entries_bytes = round_up(uint64_t{entries_max} * sizeof(ExpertFfnEntry));
  CardLayout l;
  l.hit_items_offset_bytes = round_up(sizeof(CardState));
  l.hit_entries_offset_bytes = l.hit_items_offset_bytes + items_bytes;
  l.late_items_offset_bytes = l.hit_entries_offset_bytes + entries_bytes;
  l.late_entries_offset_bytes = l.late_items_offset_bytes + items_bytes;
  l.on_card_offset_bytes = l.late_entries_offset_bytes + entries_bytes;
  l.table_offset_bytes = l.on_card_offset_bytes + round_up(entries_max);
  l.bytes = l.table_offset_bytes + round_up(uint64_t{table_count} * sizeof(uint64_t));
  return l;
}

}  // namespace hearth
