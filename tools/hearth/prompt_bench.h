// Times prompts of a loaded model and holds each against the floor of its bytes and operations:
// what every tier had to read over what its memory gave in the same run, and the products over the
// card's int8 rate.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/plan/ledger.h"
#include "tools/hearth/window_bench.h"

namespace hearth::cli {

// Tokens of prompts: "256,1024". InvalidArgument says what is wrong.
absl::StatusOr<std::vector<uint32_t>> ParsePromptList(std::string_view text);

struct PromptBenchOptions {
  uint32_t tokens = 0;  // of a prompt
  uint32_t rounds = 3;  // measured, after one that is not
};

struct PromptTimes {
  uint32_t tokens = 0;
  uint32_t chunk_rows = 0;     // of its passes, at most
  double median_sec = 0;       // of a prompt
  double floor_sec = 0;        // of the last one
  double dense_floor_sec = 0;  // likewise
  double link_floor_sec = 0;   // what was uploaded over the link's rate
  LedgerCounts served;         // of the last one
};

// The least seconds of one layer's experts: ExpertFloorSec(), or the operations of what the card
// computed over its rate.
double PromptExpertFloorSec(const LedgerCounts& layer, const MemoryRates& rates,
                            double operations_per_entry, double int8_ops_per_sec);

// Reads prompts whose routes follow the trace from `token` on, which moves with them.
absl::StatusOr<PromptTimes> TimePrompts(ModelRunner& runner, TraceRoutes& routes, Clock& clock,
                                        const MemoryRates& rates, double int8_ops_per_sec,
                                        const PromptBenchOptions& options, uint64_t& token);

std::string PromptHeader();
std::string PromptLine(const std::string& slots, const PromptTimes& times, uint32_t cpu_workers);
nlohmann::ordered_json PromptJson(const std::string& slots, const PromptTimes& times);

}  // namespace hearth::cli
