#include "tools/hearth/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBusyLoadPerCpu = 0.3;  // of others, beyond which rates scatter
constexpr uint64_t kDramOverL3 = 4;      // a walk must be so many times the last cache
constexpr int kGroupColumns = 24;

std::string KnownBytes(uint64_t bytes) { return bytes == 0 ? "unknown" : FormatBytes(bytes); }

std::string CoresText(uint32_t thread_count) {
  return absl::StrCat(thread_count, thread_count == 1 ? " core" : " cores");
}

// The columns of a table: cases that differ in nothing but rows.
using Group = std::pair<Residence, uint32_t>;  // and number of threads

std::vector<Group> GroupsOf(const std::vector<CaseResult>& cases) {
  std::vector<Group> groups;
  for (const CaseResult& c : cases) {
    const Group group(c.residence, c.thread_count);
    if (std::ranges::count(groups, group) == 0) groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

const CaseResult* FindCase(const std::vector<CaseResult>& cases, const Group& group, Isa isa,
                           uint32_t rows) {
  const auto found = std::ranges::find_if(cases, [&](const CaseResult& c) {
    return Group(c.residence, c.thread_count) == group && c.isa == isa && c.rows == rows;
  });
  return found == cases.end() ? nullptr : &*found;
}

// "1 core, L3", or "1 core, L1-L2" where more rows need more room.
std::string GroupTitle(const std::vector<CaseResult>& cases, const Group& group) {
  MemoryLevel low = MemoryLevel::kDram, high = MemoryLevel::kL1;
  for (const CaseResult& c : cases) {
    if (Group(c.residence, c.thread_count) != group) continue;
    low = std::min(low, c.level);
    high = std::max(high, c.level);
  }
  std::string level(MemoryLevelName(low));
  if (high != low) absl::StrAppend(&level, "-", ToAbsl(MemoryLevelName(high)));
  return absl::StrCat(CoresText(group.second), ", ", level);
}

std::string Cell(const CaseResult& c) {
  if (!c.not_measured.empty()) return c.not_measured;
  const double gb = c.bytes_per_sec() * 1e-9;
  const double percent = c.read_fraction() * 100;
  const double spread = std::min(c.spread * 100, 999.0);
  if (c.facts.weight_count > 0) {
    return absl::StrFormat("%7.1f %6.1f %5.0f %3.0f", gb, c.weights_per_sec() * 1e-9, percent,
                           spread);
  }
  return absl::StrFormat("%8.0f %5.1f %5.0f %3.0f", c.row_ns(), gb, percent, spread);
}

void AppendTable(const FamilyReport& report, Isa isa, std::string* text) {
  const CaseResult& first = report.cases.front();
  absl::StrAppend(text, "\n", report.name, " ", report.shape, ", ", ToAbsl(IsaName(isa)), ": ");
  if (first.facts.weight_count > 0) {
    absl::StrAppendFormat(text, "%.2f M weights, %.2f MB\n",
                          static_cast<double>(first.facts.weight_count) * 1e-6,
                          static_cast<double>(first.facts.moved_bytes) * 1e-6);
  } else {
    absl::StrAppendFormat(text, "%.1f kB for %d row%s\n",
                          static_cast<double>(first.facts.moved_bytes) * 1e-3, first.rows,
                          first.rows == 1 ? "" : "s");
  }
  const std::vector<Group> groups = GroupsOf(report.cases);
  std::string titles = "    ", heads = "rows";
  for (const Group& group : groups) {
    absl::StrAppendFormat(&titles, "%*s", kGroupColumns, GroupTitle(report.cases, group));
    absl::StrAppendFormat(
        &heads, "%*s", kGroupColumns,
        first.facts.weight_count > 0 ? "GB/s   Gw/s %read  +-" : "ns/row   GB/s %read  +-");
  }
  absl::StrAppend(text, titles, "\n", heads, "\n");
  std::vector<uint32_t> rows;
  for (const CaseResult& c : report.cases) {
    if (std::ranges::count(rows, c.rows) == 0) rows.push_back(c.rows);
  }
  for (const uint32_t row : rows) {
    absl::StrAppendFormat(text, "%4d", row);
    for (const Group& group : groups) {
      const CaseResult* c = FindCase(report.cases, group, isa, row);
      absl::StrAppendFormat(text, "%*s", kGroupColumns, c == nullptr ? "" : Cell(*c));
    }
    absl::StrAppend(text, "\n");
  }
}

Json CaseJson(const FamilyReport& family, const CaseResult& c) {
  Json j;
  j["kernel"] = family.name;
  j["shape"] = family.shape;
  j["format"] = family.format.empty() ? Json(nullptr) : Json(family.format);
  j["isa"] = IsaName(c.isa);
  j["rows"] = c.rows;
  j["threads"] = c.thread_count;
  j["residence"] = ResidenceName(c.residence);
  j["level"] = MemoryLevelName(c.level);
  j["weight_count"] = c.facts.weight_count;
  j["moved_bytes"] = c.facts.moved_bytes;
  if (!c.not_measured.empty()) {
    j["not_measured"] = c.not_measured;
    return j;
  }
  j["samples"] = c.sample_count;
  j["run_ns"] = c.run_ns;
  j["best_run_ns"] = c.best_run_ns;
  j["row_ns"] = c.row_ns();
  j["spread"] = c.spread;
  j["bytes_per_sec"] = c.bytes_per_sec();
  j["weights_per_sec"] = c.facts.weight_count > 0 ? Json(c.weights_per_sec()) : Json(nullptr);
  j["read_bytes_per_sec"] = c.read_bytes_per_sec;
  j["read_fraction"] = c.read_fraction();
  return j;
}

Json MachineJson(const BenchMachine& machine) {
  Json rates = Json::array();
  for (const ReadRate& rate : machine.read_rates) {
    rates.push_back({{"level", MemoryLevelName(rate.level)},
                     {"threads", rate.thread_count},
                     {"bytes_per_sec", rate.bytes_per_sec}});
  }
  const MachineFacts& facts = machine.facts;
  return {{"cpu", facts.cpu_model},
          {"allowed_cpus", machine.allowed_cpus},
          {"workers", machine.workers},
          {"l1d_bytes", facts.caches.l1d},
          {"l2_bytes", facts.caches.l2},
          {"l3_bytes", facts.caches.l3},
          {"huge_pages", facts.huge_pages},
          {"huge_page_bytes", machine.huge_page_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"load_average", facts.load_average},
          {"read_rates", std::move(rates)},
          {"warnings", BenchWarnings(machine)}};
}

}  // namespace

std::vector<std::string> BenchWarnings(const BenchMachine& machine) {
  std::vector<std::string> warnings;
  if (machine.facts.load_average > kBusyLoadPerCpu * machine.allowed_cpus) {
    warnings.push_back(absl::StrFormat(
        "the machine is busy (load average %.1f on %d CPUs): rates are lower and scatter more",
        machine.facts.load_average, machine.allowed_cpus));
  }
  if (machine.huge_page_bytes < machine.memory_bytes / 2) {
    warnings.push_back("most of the memory lies in small pages: walks over DRAM are slower");
  }
  const uint64_t l3 = machine.facts.caches.l3;
  if (machine.memory_bytes < kDramOverL3 * l3) {
    warnings.push_back(absl::StrCat("a walk over ", FormatBytes(machine.memory_bytes),
                                    " is partly served by the last cache of ", FormatBytes(l3),
                                    ": --memory ", FormatBytes(kDramOverL3 * l3),
                                    " measures DRAM"));
  }
  return warnings;
}

std::string MachineText(const BenchMachine& machine) {
  const MachineFacts& facts = machine.facts;
  std::string text = absl::StrFormat(
      "%s, %d CPUs allowed, L1 %s, L2 %s, L3 %s\n"
      "huge pages: %s, %s of %s in use; load average %.1f\n",
      facts.cpu_model.empty() ? "unknown processor" : facts.cpu_model, machine.allowed_cpus,
      KnownBytes(facts.caches.l1d), KnownBytes(facts.caches.l2), KnownBytes(facts.caches.l3),
      facts.huge_pages.empty() ? "unknown" : facts.huge_pages, FormatBytes(machine.huge_page_bytes),
      FormatBytes(machine.memory_bytes), facts.load_average);
  for (const std::string& workers : machine.workers) absl::StrAppend(&text, workers, "\n");
  uint32_t threads = 0;
  for (const ReadRate& rate : machine.read_rates) {
    if (rate.thread_count != threads) {
      threads = rate.thread_count;
      absl::StrAppend(&text, text.back() == '\n' ? "" : "\n", "read rate of ", CoresText(threads),
                      ", GB/s:");
    }
    absl::StrAppendFormat(&text, "  %s %.1f", MemoryLevelName(rate.level),
                          rate.bytes_per_sec * 1e-9);
  }
  absl::StrAppend(&text,
                  "\nGB/s: weights, or bytes moved, each counted once for all rows; Gw/s: 1e9 "
                  "weights a second;\n"
                  "%read: of the rate at which the same threads read memory of that extent in the "
                  "same moment;\n"
                  "+-: half the distance between the quartiles, in percent of the median\n");
  return text;
}

std::string FamilyTable(const FamilyReport& report) {
  std::string text;
  std::vector<Isa> isas;
  for (const CaseResult& c : report.cases) {
    if (std::ranges::count(isas, c.isa) > 0) continue;
    isas.push_back(c.isa);
    AppendTable(report, c.isa, &text);
  }
  return text;
}

std::string BenchJson(const BenchMachine& machine, const KernelBenchOptions& options,
                      const std::string& shape, const std::vector<FamilyReport>& reports) {
  Json j;
  j["machine"] = MachineJson(machine);
  j["settings"] = {{"shape", shape},
                   {"case_ns", options.case_ns},
                   {"samples_min", options.sample_count_min},
                   {"samples_max", options.sample_count_max},
                   {"memory_bytes", options.memory_bytes}};
  Json cases = Json::array();
  for (const FamilyReport& family : reports) {
    for (const CaseResult& c : family.cases) cases.push_back(CaseJson(family, c));
  }
  j["cases"] = std::move(cases);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hearth::cli
