// Measures kernels: every case of a family in turn, again and again, beside the rate at which the
// same workers read memory of the same extent in the same moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/bench/kernel_workload.h"
#include "cpu_kernels/bench/machine_facts.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"

namespace hearth {

enum class Residence : uint8_t {
  kCache,  // one item again and again
  kDram,   // many items, one after the other
};
std::string_view ResidenceName(Residence residence);  // "cache", "dram"

enum class MemoryLevel : uint8_t { kL1, kL2, kL3, kDram };
std::string_view MemoryLevelName(MemoryLevel level);  // "L1", "L2", "L3", "DRAM"

// Where a working set lies: `bytes_each` of every worker, of which each has its own first and
// second level. A machine that tells nothing of its caches has DRAM alone.
MemoryLevel LevelOf(const CacheBytes& caches, uint64_t bytes_each, uint32_t worker_count);

struct KernelBenchOptions {
  std::vector<const CpuKernels*> kernels;  // rows of the table that this machine runs
  std::vector<uint32_t> rows = {1, 2, 4, 7, 8};
  std::vector<Residence> residences = {Residence::kCache, Residence::kDram};
  uint64_t memory_bytes = 0;  // that DRAM cases walk over
  int64_t case_ns = 0;        // for all samples of one case together, where that gives enough
  // Many and short: what else runs on the machine disturbs some of them, and the median is of the
  // others.
  uint32_t sample_count_min = 11;
  uint32_t sample_count_max = 151;

  int64_t sample_ns() const { return case_ns / sample_count_max; }
  CacheBytes caches;
};

struct ReadRate {
  MemoryLevel level;
  uint32_t thread_count;
  double bytes_per_sec;
};

struct CaseResult {
  Isa isa = Isa::kScalar;
  uint32_t rows = 0;
  Residence residence = Residence::kCache;
  uint32_t thread_count = 0;
  MemoryLevel level = MemoryLevel::kDram;
  WorkloadFacts facts;
  std::string not_measured{};     // why; then what follows is zero
  double run_ns = 0;              // median: one item, all rows; with many workers their throughput
  double best_run_ns = 0;         // of all samples
  double spread = 0;              // half the distance between the quartiles, over the median
  double read_bytes_per_sec = 0;  // median of what the probe found
  uint32_t sample_count = 0;

  double bytes_per_sec() const;    // moved
  double read_fraction() const;    // of the probe's rate
  double weights_per_sec() const;  // each counted once for all rows; zero: the kernel reads none
  double row_ns() const { return run_ns / rows; }
};

class KernelBench {
 public:
  // ResourceExhausted when `memory_bytes` is more than `available_bytes`, InvalidArgument when it
  // is too little to measure anything. Every case runs on each of `teams`; they and `clock` outlive
  // the object.
  static absl::StatusOr<std::unique_ptr<KernelBench>> Create(const KernelBenchOptions& options,
                                                             std::span<WorkerTeam* const> teams,
                                                             uint64_t available_bytes,
                                                             Clock& clock);
  ~KernelBench();

  uint64_t memory_bytes() const { return arena_.data().size(); }  // that it holds

  // Of every level that the machine has, for each team.
  std::vector<ReadRate> MeasureReadRates();

  uint64_t CaseCount(const KernelFamily& family) const;
  // `progress` receives the number of cases done so far, of this family.
  std::vector<CaseResult> Measure(const KernelFamily& family,
                                  const std::function<void(uint64_t)>& progress);

 private:
  struct Case;
  struct ProbeOf;
  KernelBench(const KernelBenchOptions& options, std::span<WorkerTeam* const> teams, Clock& clock,
              AnonymousMapping arena);

  void FillArena(const KernelFamily& family, const WorkloadFacts& facts);
  std::vector<Case> MakeCases(const KernelFamily& family);
  Case MakeCase(const KernelFamily& family, Case wanted, uint64_t out_offset);
  std::vector<ProbeOf> MakeProbes(std::vector<Case>* cases);
  void Calibrate(Case* c);
  void RunJob(Case* c);
  void TakeSample(Case* c, double read_bytes_per_sec);
  bool Done(const Case& c) const;  // samples enough

  const KernelBenchOptions options_;
  const std::vector<WorkerTeam*> teams_;
  Clock& clock_;
  AnonymousMapping arena_;
};

}  // namespace hearth
