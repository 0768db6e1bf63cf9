// The workers of a benchmark, each on the CPU that the product would give it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/worker_team.h"
#include "runtime/topology/cpu_quota.h"
#include "runtime/topology/machine.h"
#include "runtime/topology/worker_binding.h"
#include "runtime/topology/worker_plan.h"

namespace hearth::cli {

class BenchTeams {
 public:
  // Nothing is pinned yet.
  static absl::StatusOr<BenchTeams> Create();

  uint32_t allowed_cpu_count() const { return all_.allowed_cpu_count; }
  uint32_t all_threads() const { return static_cast<uint32_t>(all_.workers.size()); }

  // Starts and pins one team for each count; the calling thread is worker 0 of all of them, on the
  // CPU that the last one gives it. Called once.
  absl::Status Start(std::span<const uint32_t> thread_counts);
  std::vector<WorkerTeam*> teams() const;
  const std::vector<std::string>& descriptions() const { return descriptions_; }  // one for a team

 private:
  BenchTeams() = default;
  std::unique_ptr<Machine> machine_;  // null where hwloc cannot read it
  Topology topology_;
  std::vector<uint32_t> allowed_;
  std::optional<CpuQuota> quota_;
  WorkerPlan all_;
  std::vector<std::unique_ptr<WorkerTeam>> teams_;
  std::vector<std::unique_ptr<WorkerBinding>> bindings_;
  std::vector<std::string> descriptions_;
};

}  // namespace hearth::cli
