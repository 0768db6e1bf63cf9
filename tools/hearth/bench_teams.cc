#include "tools/hearth/bench_teams.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/cpus.h"
#include "runtime/base/status.h"

namespace hearth::cli {

absl::StatusOr<BenchTeams> BenchTeams::Create() {
  BenchTeams teams;
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Read();
  if (machine.ok()) {
    teams.machine_ = *std::move(machine);
    teams.topology_ = teams.machine_->topology();
  }
  teams.allowed_ = AllowedCpus();
  teams.quota_ = ReadCpuQuota();
  HEARTH_ASSIGN_OR_RETURN(teams.all_,
                          PlanWorkers(teams.topology_, teams.allowed_, teams.quota_, {}));
  return teams;
}

absl::Status BenchTeams::Start(std::span<const uint32_t> thread_counts) {
  std::vector<WorkerPlan> plans;
  for (const uint32_t count : thread_counts) {
    HEARTH_ASSIGN_OR_RETURN(WorkerPlan plan,
                            PlanWorkers(topology_, allowed_, quota_, {.threads = count}));
    std::vector<uint32_t> nodes;
    for (const PlannedWorker& worker : plan.workers) nodes.push_back(worker.node);
    teams_.push_back(std::make_unique<WorkerTeam>(count, std::move(nodes)));
    plans.push_back(std::move(plan));
  }
  // Only now: threads inherit the CPU of the thread that starts them.
  for (size_t i = 0; i < plans.size(); ++i) {
    absl::Status status = absl::UnavailableError("hwloc cannot read this machine");
    if (machine_ != nullptr) {
      bindings_.push_back(std::make_unique<WorkerBinding>(*teams_[i], plans[i], *machine_));
      status = bindings_.back()->status();
    }
    descriptions_.push_back(
        status.ok() ? DescribePlan(plans[i])
                    : absl::StrCat(thread_counts[i], " workers, not pinned: ", status.message()));
  }
  return absl::OkStatus();
}

std::vector<WorkerTeam*> BenchTeams::teams() const {
  std::vector<WorkerTeam*> teams;
  for (const std::unique_ptr<WorkerTeam>& team : teams_) teams.push_back(team.get());
  return teams;
}

}  // namespace hearth::cli
