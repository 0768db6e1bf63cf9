#include "tools/hearth/workers.h"

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/cpus.h"
#include "runtime/base/status.h"

namespace hearth::cli {

Workers& Workers::operator=(Workers&& other) noexcept {
  binding.reset();  // before what it borrows
  team.reset();
  machine = std::move(other.machine);
  quota = std::move(other.quota);
  plan = std::move(other.plan);
  team = std::move(other.team);
  binding = std::move(other.binding);
  other_cpus = std::move(other.other_cpus);
  warning = std::move(other.warning);
  return *this;
}

absl::StatusOr<Workers> Workers::Start(uint32_t threads, const std::string& cpus,
                                       std::vector<uint32_t> allowed) {
  if (allowed.empty()) allowed = AllowedCpus();
  Workers workers;
  WorkerRequest request{.threads = threads};
  if (!cpus.empty()) {
    absl::StatusOr<std::vector<uint32_t>> named = ParseCpuList(cpus);
    if (!named.ok()) return Annotate(named.status(), "cpus");
    request.cpus = *std::move(named);
  }
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Read();
  if (machine.ok()) {
    workers.machine = *std::move(machine);
  } else {
    workers.warning = ToStd(machine.status().message());
  }
  workers.quota = ReadCpuQuota();
  HEARTH_ASSIGN_OR_RETURN(
      workers.plan, PlanWorkers(workers.machine ? workers.machine->topology() : Topology{}, allowed,
                                workers.quota, request));
  std::vector<uint32_t> nodes;
  for (const PlannedWorker& worker : workers.plan.workers) nodes.push_back(worker.node);
  workers.team = std::make_unique<WorkerTeam>(static_cast<uint32_t>(nodes.size()), nodes);
  if (workers.machine == nullptr) return workers;
  workers.other_cpus = allowed;
  std::erase_if(workers.other_cpus,
                [&](uint32_t cpu) { return workers.plan.workers[0].cpu == cpu; });
  workers.binding = std::make_unique<WorkerBinding>(*workers.team, workers.plan, *workers.machine);
  workers.warning = ToStd(workers.binding->status().message());
  return workers;
}

absl::Status Workers::Beside(const std::function<absl::Status()>& start) const {
  absl::Status status;
  std::thread starter([&] {
    (void)AllowCpus(other_cpus);  // refused: they share the first worker's, and work all the same
    status = start();
  });
  starter.join();
  return status;
}

void PrintWorkers(const Workers& workers, std::ostream& out) {
  out << "hearth: " << DescribePlan(workers.plan) << "\n";
  if (workers.warning.empty()) return;
  out << "hearth: warning: the workers are not pinned, which may cost speed and changes no result: "
      << workers.warning << "\n";
}

}  // namespace hearth::cli
