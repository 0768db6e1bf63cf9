// hearth bench kernels: how fast each CPU kernel is, and how far from what the memory allows.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cpu_kernels/bench/kernel_bench.h"
#include "cpu_kernels/bench/machine_facts.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/status.h"
#include "tools/hearth/bench_plan.h"
#include "tools/hearth/bench_report.h"
#include "tools/hearth/bench_teams.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/progress.h"

namespace hearth::cli {
namespace {

constexpr double kOverhead = 1.9;  // calibration, probes and data, over the time of the cases

absl::Status RunKernels(const BenchKernelsConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(BenchTeams teams, BenchTeams::Create());
  HEARTH_ASSIGN_OR_RETURN(BenchPlan plan, PlanBench(config, teams.all_threads()));
  BenchMachine machine{.facts = ReadMachineFacts(), .allowed_cpus = teams.allowed_cpu_count()};
  plan.options.caches = machine.facts.caches;
  HEARTH_RETURN_IF_ERROR(teams.Start(plan.thread_counts));
  machine.workers = teams.descriptions();
  HEARTH_ASSIGN_OR_RETURN(const MemoryLimit limit, AvailableMemory());
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<KernelBench> bench,
      KernelBench::Create(plan.options, teams.teams(), limit.available_bytes, io.clock));
  uint64_t case_count = 0;
  for (const KernelFamily& family : plan.families) case_count += bench->CaseCount(family);
  const double seconds =
      static_cast<double>(case_count) * static_cast<double>(config.seconds_per_case) * kOverhead;
  io.talk << absl::StrFormat("%d cases, about %s\n", case_count,
                             FormatSeconds(static_cast<uint64_t>(seconds) + 1))
          << std::flush;
  machine.memory_bytes = bench->memory_bytes();
  machine.huge_page_bytes = HugePageBytesInUse();
  machine.read_rates = bench->MeasureReadRates();
  for (const std::string& warning : BenchWarnings(machine)) {
    io.talk << "warning: " << warning << "\n";
  }
  if (!io.json) io.results << MachineText(machine) << std::flush;

  Progress line(io, {.label = "measuring", .unit = ProgressUnit::kCases, .total = case_count});
  uint64_t done = 0;
  std::vector<FamilyReport> reports;
  for (const KernelFamily& family : plan.families) {
    reports.push_back({family.name, family.shape, family.format,
                       bench->Measure(family, [&](uint64_t cases) { line.Update(done + cases); })});
    done += bench->CaseCount(family);
    line.Hide();
    if (!io.json) io.results << FamilyTable(reports.back()) << std::flush;
  }
  if (io.json) io.results << BenchJson(machine, plan.options, config.shape, reports) << "\n";
  return absl::OkStatus();
}

}  // namespace

Command BenchKernelsCommand() {
  return MakeCommand<BenchKernelsConfig>(
      {.name = "bench kernels",
       .summary = "how fast each CPU kernel is, beside the memory it reads",
       .notes =
           "Each kernel is shown against its floor: what the same threads read from the same "
           "level\n"
           "of memory in the same moment. Medians of 11 to 151 samples, all cases in turn.\n"
           "All of it takes about four minutes; --filter nvfp4 --rows 1,4 takes a few seconds."},
      RunKernels);
}

}  // namespace hearth::cli
