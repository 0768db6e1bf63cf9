// What the expert tiers did, as JSON and as text.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/engine/expert_placement.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/plan/ledger.h"
#include "runtime/plan/request_ledger.h"

namespace hearth::cli {

// {"vram": {"distinct", "entries", "bytes", "seconds"}, "pcie", "cpu", "ssd"}
nlohmann::ordered_json ServicesJson(const LedgerCounts& counts);

// The same and "total".
nlohmann::ordered_json LedgerJson(const LedgerCounts& counts);

// {"vram": {"distinct", "entries"}, "pcie", "cpu", "ssd", "total"}: of one request.
nlohmann::ordered_json RequestJson(const RequestCounts& served);

// Hit rate, waits, swaps, the RAM tier's reads and the notes; with_layers: a ledger for each layer.
nlohmann::ordered_json ExpertStatsJson(const ExpertPlacement& experts, bool with_layers);

// {"ram_bytes", "vram_bytes", "items": [{"what", "bytes", "on_card"}]}
nlohmann::ordered_json MemoryPlanJson(const MemoryPlan& plan);

// The ledger in total and a line for each layer, the swaps and the RAM tier.
std::string ExpertStatsText(const ExpertPlacement& experts);

}  // namespace hearth::cli
