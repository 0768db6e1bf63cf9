// What `hearth bench kernels` measures: its flags, and what follows from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/bench/kernel_bench.h"
#include "cpu_kernels/bench/kernel_workload.h"
#include "runtime/config/field.h"

namespace hearth::cli {

struct BenchKernelsConfig {
  std::string isa = "auto";
  std::string filter;
  std::string format;
  std::string rows = "1,2,4,7,8";
  std::string residence = "cache,dram";
  std::string threads = "1,all";
  std::string shape = "flash-next";
  std::string memory = "512MiB";
  float seconds_per_case = 0.2f;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("isa", isa, "auto is the best; all, or a list", {.metavar = "auto|scalar,avx2,..."});
    v("filter", filter, "kernels whose name contains one of these; none: all of them",
      {.metavar = "NAME,..."});
    v("format", format, "formats of the expert kernels; none: all of them",
      {.metavar = "nvfp4,..."});
    v("rows", rows, "rows of a window", {.metavar = "N,..."});
    v("residence", residence, "one item repeated, or a walk over --memory",
      {.metavar = "cache,dram"});
    v("threads", threads, "all: one for each physical core", {.metavar = "N,...,all"});
    v("shape", shape, "of the layers; HxW: hidden, expert width",
      {.metavar = "flash-next|flashlet|HxW"});
    v("memory", memory, "of weights that the dram cases walk over", {.metavar = "SIZE"});
    v("seconds_per_case", seconds_per_case, "in 11 to 151 samples",
      {.minimum = 0.0001, .maximum = 60});
  }

  absl::Status Validate(const GivenFields&) const;
};

struct BenchPlan {
  std::vector<KernelFamily> families;
  std::vector<uint32_t> thread_counts;  // rising
  KernelBenchOptions options;
};

// InvalidArgument names the field, what it holds and what would be accepted.
// "all" threads are `all_threads`.
absl::StatusOr<BenchPlan> PlanBench(const BenchKernelsConfig& config, uint32_t all_threads);

}  // namespace hearth::cli
