// Which CPU each worker of the team runs on. A pure function: no I/O, no machine.
//
// Without a request, one worker for each physical core that has an allowed CPU, on the lowest
// allowed CPU of the core:
//   - Slower kinds of cores are left out as long as kCoresEnough faster ones remain: a share that
//     is split evenly waits for the slowest core, and a handful of fast cores reads memory as fast
//     as it goes. With fewer fast cores than that, all that are needed to reach it take part.
//   - A CPU quota of q CPUs allows floor(q) workers, at least one: a worker more would have the
//     whole team stopped for the rest of every period.
//   - A CPU that is allowed but that the topology does not know counts as a core of its own.
// Workers beyond the cores (an explicit thread count) take the slower cores, then the second
// hardware threads. Beyond the allowed CPUs nobody is pinned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/topology/cpu_quota.h"
#include "runtime/topology/topology.h"

namespace hearth {

inline constexpr uint32_t kCoresEnough = 4;

// What a user asks for; at most one of the two.
struct WorkerRequest {
  uint32_t threads = 0;        // 0 = as many as the plan finds right
  std::vector<uint32_t> cpus;  // one worker on each of these; empty = the plan chooses
};

struct PlannedWorker {
  std::optional<uint32_t> cpu;  // none: wherever the system puts it
  uint32_t tier = 0;            // of its core
  uint32_t node = 0;            // index into WorkerPlan::numa_nodes
};

struct WorkerPlan {
  std::vector<PlannedWorker> workers;  // by node, then by CPU; worker 0 is the calling thread
  std::vector<uint32_t> numa_nodes;    // that have workers, in the system's numbering; rising
  uint32_t allowed_cpu_count = 0;
  uint32_t core_count = 0;  // physical cores with an allowed CPU
  std::string reason;       // why these: one line

  bool pinned() const { return !workers.empty() && workers.front().cpu.has_value(); }
  std::vector<uint32_t> cpus() const;  // of all workers, rising; empty when not pinned
};

// `allowed` rises; when it is empty, which CPUs there are is not known and nobody is pinned.
// InvalidArgument when a CPU that the request names is not allowed.
absl::StatusOr<WorkerPlan> PlanWorkers(const Topology& topology, std::span<const uint32_t> allowed,
                                       const std::optional<CpuQuota>& quota,
                                       const WorkerRequest& request);

// "8 workers pinned to CPUs 0-7: ..." or "64 workers, not pinned: ...".
std::string DescribePlan(const WorkerPlan& plan);

}  // namespace hearth
