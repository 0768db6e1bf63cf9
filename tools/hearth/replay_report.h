// The results of `hearth replay` as a table, as CSV and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cache/policy/replay.h"

namespace hearth::cli {

// One policy, or oracle, at one window and slot count.
struct ReplayRow {
  std::string policy;
  uint32_t window_tokens = 0;
  uint64_t slot_count = 0;
  double slot_share = 0;             // of all experts
  uint32_t swaps_per_layer_max = 0;  // 0: every miss
  bool oracle = false;
  ReplayResult result;
  int64_t ns = 0;  // that the replay took
  // Of the same window and slots: what the row is held against.
  double lru_hit_rate = 0;
  double belady_hit_rate = 0;

  double windows_per_sec() const;  // warm-up not counted
  double bytes_per_window(uint64_t expert_bytes) const;
};

void PrintReplayTable(std::span<const ReplayRow> rows, uint64_t expert_bytes, std::ostream& out);
void PrintReplayCsv(std::span<const ReplayRow> rows, uint64_t expert_bytes, std::ostream& out);
nlohmann::ordered_json ReplayJson(std::span<const ReplayRow> rows, uint64_t expert_bytes);

}  // namespace hearth::cli
