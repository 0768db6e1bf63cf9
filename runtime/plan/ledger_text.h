// The ledger as text for a terminal: one row for each service and one for their sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/ledger.h"

namespace hearth {

// `whole` shared out in proportion to `counts`: whole numbers that add up to exactly `whole`. The
// largest remainders are rounded up, equals by index. All 0 when the counts are.
std::vector<uint32_t> Portions(std::span<const uint64_t> counts, uint32_t whole);

// Shares of `counts` in tenths of a percent that add up to exactly 1000.
std::vector<uint32_t> PermilleShares(std::span<const uint64_t> counts);

// A heading, vram, pcie, cpu, ssd and total: distinct experts and entries with their percentages,
// bytes and time. At most 80 columns, no line ends with a space; the columns are as wide as needed.
std::vector<std::string> LedgerTable(const LedgerCounts& counts);

}  // namespace hearth
