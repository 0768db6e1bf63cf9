// What `hearth bench kernels` says: the machine, the tables, the JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu_kernels/bench/kernel_bench.h"
#include "cpu_kernels/bench/kernel_workload.h"
#include "cpu_kernels/bench/machine_facts.h"

namespace hearth::cli {

struct BenchMachine {
  MachineFacts facts;
  uint32_t allowed_cpus = 0;
  std::vector<std::string> workers;  // where those of each team run
  uint64_t memory_bytes = 0;         // that the benchmark holds
  uint64_t huge_page_bytes = 0;      // of this process
  std::vector<ReadRate> read_rates;
};

struct FamilyReport {
  std::string name;
  std::string shape;
  std::string format;
  std::vector<CaseResult> cases;
};

// Whatever makes the numbers worth less than they look, each as one sentence.
std::vector<std::string> BenchWarnings(const BenchMachine& machine);

std::string MachineText(const BenchMachine& machine);
std::string FamilyTable(const FamilyReport& report);  // one block for each instruction set

// One object on one line.
std::string BenchJson(const BenchMachine& machine, const KernelBenchOptions& options,
                      const std::string& shape, const std::vector<FamilyReport>& reports);

}  // namespace hearth::cli
