#include "runtime/plan/ledger_text.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint32_t kWhole = 1000;
constexpr uint32_t kColumnCount = 7;
using Row = std::array<std::string, kColumnCount>;

std::string Percent(uint32_t permille) {
  return absl::StrCat(permille / 10, ".", permille % 10, "%");
}

// "1,234,567"
std::string Grouped(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// Columns: name, distinct, its share, entries, its share, bytes, time.
Row RowOf(std::string_view name, const ServiceTotals& totals, uint32_t distinct_permille,
          uint32_t entry_permille) {
  return {std::string(name),
          Grouped(totals.distinct),
          Percent(distinct_permille),
          Grouped(totals.entries),
          Percent(entry_permille),
          FormatBytes(totals.bytes),
          absl::StrFormat("%.3f s", static_cast<double>(totals.ns) * 1e-9)};
}

}  // namespace

std::vector<uint32_t> Portions(std::span<const uint64_t> counts, uint32_t whole) {
  std::vector<uint32_t> shares(counts.size(), 0);
  unsigned __int128 all = 0;
  for (const uint64_t count : counts) all += count;
  if (all == 0) return shares;
  std::vector<unsigned __int128> remainders(counts.size());
  uint32_t given = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const unsigned __int128 scaled = static_cast<unsigned __int128>(counts[i]) * whole;
    shares[i] = static_cast<uint32_t>(scaled / all);
    remainders[i] = scaled % all;
    given += shares[i];
  }
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (uint32_t i = 0; given < whole; ++i, ++given) ++shares[order[i]];
  return shares;
}

std::vector<uint32_t> PermilleShares(std::span<const uint64_t> counts) {
  return Portions(counts, kWhole);
}

std::vector<std::string> LedgerTable(const LedgerCounts& counts) {
  std::array<uint64_t, kServiceCount> distinct{};
  std::array<uint64_t, kServiceCount> entries{};
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    distinct[s] = counts.services[s].distinct;
    entries[s] = counts.services[s].entries;
  }
  const std::vector<uint32_t> distinct_shares = PermilleShares(distinct);
  const std::vector<uint32_t> entry_shares = PermilleShares(entries);
  std::vector<Row> rows = {{"served by", "experts", "", "entries", "", "bytes", "time"}};
  uint32_t distinct_sum = 0;
  uint32_t entry_sum = 0;
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    rows.push_back(RowOf(ServiceName(static_cast<Service>(s)), counts.services[s],
                         distinct_shares[s], entry_shares[s]));
    distinct_sum += distinct_shares[s];
    entry_sum += entry_shares[s];
  }
  rows.push_back(RowOf("total", counts.total(), distinct_sum, entry_sum));

  std::array<size_t, kColumnCount> widths{};
  for (const Row& row : rows) {
    for (uint32_t c = 0; c < kColumnCount; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (uint32_t c = 1; c < kColumnCount; ++c) {
      line += std::string(2 + widths[c] - row[c].size(), ' ') + row[c];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace hearth
