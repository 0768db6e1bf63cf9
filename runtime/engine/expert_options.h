// Where a runner keeps the experts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/io/open_reader.h"
#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"

namespace hearth {

enum class RamTier : uint8_t {
  kWhole,   // every expert, read and checked at load
  kBudget,  // as many as a budget holds, the others read as they are asked for
  kMapped,  // whatever the page cache keeps
  kDaemon   // in a hearthd, which other engines may share
};

struct ExpertOptions {
  // Of the card, or of the host memory that plays one. None: all that the card has room for, or no
  // slots where there is no card; all zero: no slots.
  std::optional<SlotBudget> slots;
  uint64_t vram_reserve_bytes = uint64_t{512} << 20;  // of the card, left for others
  std::string policy{kDefaultPolicy};
  double pcie_share = -1;  // of the RAM misses, 0 to 1; negative: what costs least
  uint64_t pcie_window_bytes_max = uint64_t{256} << 20;
  RamTier ram = RamTier::kWhole;
  // Makes the RAM tier in place of `ram`, for experts that are in no file; null: `ram` says.
  std::function<absl::StatusOr<std::unique_ptr<ExpertStore>>()> make_store;
  uint64_t ram_budget_bytes = 0;  // kBudget
  std::string daemon_socket;      // kDaemon
  IoChoice io = IoChoice::kAuto;
  // Sightings by layer, (expert_count) each, from a profile; empty: none.
  std::vector<std::vector<float>> seeds;
};

}  // namespace hearth
