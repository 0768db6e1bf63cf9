#include "tools/hearth/bench_plan.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "cpu_kernels/bench/bench_data.h"
#include "cpu_kernels/bench/bench_shape.h"
#include "cpu_kernels/bench/kernel_catalogue.h"
#include "runtime/base/cpus.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

constexpr uint32_t kRowsMax = 512;
constexpr uint32_t kThreadsMax = 1024;
constexpr uint64_t kMemoryBytesMin = 16_MiB;

absl::Status Refuse(std::string_view field, std::string_view found, std::string_view accepts) {
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(field), ": expected ", ToAbsl(accepts), ", found '", ToAbsl(found), "'"));
}

// The parts between commas; none when the text is empty.
std::vector<std::string> Parts(const std::string& text) {
  if (text.empty()) return {};
  return absl::StrSplit(text, ',');
}

// Whole numbers from 1 to `most`, rising, each once; "all" stands for `all` unless that is zero.
absl::StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view field, const std::string& text,
                                                  uint32_t most, uint32_t all) {
  std::vector<uint32_t> counts;
  for (const std::string& part : Parts(text)) {
    uint32_t count = part == "all" ? all : 0;
    if (count == 0 && (!absl::SimpleAtoi(part, &count) || count == 0 || count > most)) break;
    counts.push_back(count);
  }
  if (counts.empty() || counts.size() != Parts(text).size()) {
    return Refuse(field, text,
                  absl::StrCat("whole numbers from 1 to ", most, all != 0 ? " or all" : "",
                               " with commas between them"));
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

absl::StatusOr<std::vector<Residence>> ParseResidences(const std::string& text) {
  std::vector<Residence> residences;
  const std::vector<std::string> parts = Parts(text);
  for (const Residence r : {Residence::kCache, Residence::kDram}) {
    if (std::ranges::count(parts, ResidenceName(r)) > 0) residences.push_back(r);
  }
  const bool known = std::ranges::all_of(
      parts, [](const std::string& part) { return part == "cache" || part == "dram"; });
  if (residences.empty() || !known) return Refuse("residence", text, "cache, dram or cache,dram");
  return residences;
}

absl::StatusOr<std::vector<const CpuKernels*>> ParseIsas(const std::string& text) {
  const CpuFeatures have = DetectCpuFeatures();
  if (text == "auto") return std::vector<const CpuKernels*>{&SelectCpuKernels(have)};
  std::vector<const CpuKernels*> rows;
  std::vector<std::string> names;
  const std::vector<std::string> parts = Parts(text);
  for (const CpuKernels& row : AllCpuKernels()) {
    if (!Supports(have, row.isa)) continue;
    names.emplace_back(IsaName(row.isa));
    if (text == "all" || std::ranges::count(parts, names.back()) > 0) rows.push_back(&row);
  }
  const bool known = std::ranges::all_of(
      parts, [&](const std::string& part) { return std::ranges::count(names, part) > 0; });
  if (rows.empty() || (text != "all" && !known)) {
    return Refuse(
        "isa", text,
        absl::StrCat("auto, all or some of what this processor has: ", absl::StrJoin(names, ",")));
  }
  return rows;
}

absl::StatusOr<std::vector<KernelFamily>> ChooseFamilies(const BenchKernelsConfig& config,
                                                         const BenchShape& shape) {
  const std::vector<std::string> formats = Parts(config.format);
  std::vector<std::string> format_names;
  for (const BenchedFormat& f : kBenchedFormats) format_names.push_back(f.Name());
  for (const std::string& format : formats) {
    if (std::ranges::count(format_names, format) == 0) {
      return Refuse("format", config.format,
                    absl::StrCat("some of ", absl::StrJoin(format_names, ",")));
    }
  }
  const std::vector<std::string> filters = Parts(config.filter);
  std::vector<std::string> names;
  std::vector<KernelFamily> chosen;
  std::vector<bool> used(filters.size(), false);
  for (KernelFamily& family : AllKernelFamilies(shape)) {
    names.push_back(family.name);
    bool wanted = filters.empty();
    for (size_t i = 0; i < filters.size(); ++i) {
      if (!absl::StrContains(family.name, filters[i])) continue;
      wanted = true;
      used[i] = true;
    }
    if (!family.format.empty() && !formats.empty() &&
        std::ranges::count(formats, family.format) == 0) {
      wanted = false;
    }
    if (wanted) chosen.push_back(std::move(family));
  }
  if (chosen.empty() || std::ranges::count(used, false) > 0) {
    return Refuse("filter", config.filter,
                  absl::StrCat("parts of these names: ", absl::StrJoin(names, " ")));
  }
  return chosen;
}

}  // namespace

absl::StatusOr<BenchPlan> PlanBench(const BenchKernelsConfig& config, uint32_t all_threads) {
  BenchPlan plan;
  KernelBenchOptions& o = plan.options;
  HEARTH_ASSIGN_OR_RETURN(o.kernels, ParseIsas(config.isa));
  HEARTH_ASSIGN_OR_RETURN(o.rows, ParseCounts("rows", config.rows, kRowsMax, 0));
  HEARTH_ASSIGN_OR_RETURN(o.residences, ParseResidences(config.residence));
  HEARTH_ASSIGN_OR_RETURN(plan.thread_counts,
                          ParseCounts("threads", config.threads, kThreadsMax, all_threads));
  const absl::StatusOr<uint64_t> bytes = ParseBytes(config.memory);
  if (!bytes.ok() || *bytes < kMemoryBytesMin) {
    return Refuse("memory", config.memory,
                  absl::StrCat("a size with a unit, such as 512MiB, of at least ",
                               FormatBytes(kMemoryBytesMin)));
  }
  o.memory_bytes = *bytes;
  o.case_ns = static_cast<int64_t>(static_cast<double>(config.seconds_per_case) * 1e9);
  HEARTH_ASSIGN_OR_RETURN(const BenchShape shape, BenchShape::Parse(config.shape));
  HEARTH_ASSIGN_OR_RETURN(plan.families, ChooseFamilies(config, shape));
  return plan;
}

absl::Status BenchKernelsConfig::Validate(const GivenFields&) const {
  return PlanBench(*this, AllowedCpuCount()).status();
}

}  // namespace hearth::cli
