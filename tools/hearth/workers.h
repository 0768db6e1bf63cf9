// The workers of a command: how many, on which CPUs, and why; started and pinned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/worker_team.h"
#include "runtime/topology/cpu_quota.h"
#include "runtime/topology/machine.h"
#include "runtime/topology/worker_binding.h"
#include "runtime/topology/worker_plan.h"

namespace hearth::cli {

struct Workers {
  std::unique_ptr<Machine> machine;  // null where hwloc cannot read it
  std::optional<CpuQuota> quota;
  WorkerPlan plan;
  std::unique_ptr<WorkerTeam> team;
  std::unique_ptr<WorkerBinding> binding;  // borrows machine and team; null: nobody is pinned
  std::vector<uint32_t> other_cpus;        // that are not the first worker's; empty: any
  std::string warning;                     // why the workers are not pinned as planned; or empty

  // `threads` and `cpus` as the flags of these names give them, `allowed` as CommandIo has it.
  // InvalidArgument when a CPU is named that this process may not use.
  static absl::StatusOr<Workers> Start(uint32_t threads, const std::string& cpus,
                                       std::vector<uint32_t> allowed);

  // Runs `start` on a thread of its own and returns what it says. Threads that it starts, of ours
  // or of a driver, are not held to the CPU of the first worker, who computes between two of their
  // calls, but have all others that this process may use.
  absl::Status Beside(const std::function<absl::Status()>& start) const;

  Workers() = default;
  Workers(Workers&&) = default;
  Workers& operator=(Workers&& other) noexcept;
};

// One line that says which CPUs were chosen and why, and one if they could not be had.
void PrintWorkers(const Workers& workers, std::ostream& out);

}  // namespace hearth::cli
