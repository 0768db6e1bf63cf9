#include "runtime/topology/worker_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/cpus.h"

namespace hearth {
namespace {

// The cores that have allowed CPUs, with only those; then the CPUs that no core lists.
std::vector<Core> AllowedCores(const Topology& topology, std::span<const uint32_t> allowed) {
  std::vector<Core> cores;
  std::set<uint32_t> unknown(allowed.begin(), allowed.end());
  uint32_t cache_next = 0;
  for (const Core& core : topology.cores) {
    Core kept = core;
    std::erase_if(kept.cpus, [&](uint32_t cpu) { return unknown.erase(cpu) == 0; });
    cache_next = std::max(cache_next, core.cache + 1);
    if (!kept.cpus.empty()) cores.push_back(std::move(kept));
  }
  for (const uint32_t cpu : unknown) cores.push_back({.cpus = {cpu}, .cache = cache_next++});
  return cores;
}

// The slowest tier that takes part.
uint32_t LastTier(const std::vector<Core>& cores) {
  std::map<uint32_t, uint32_t> count_of_tier;
  for (const Core& core : cores) ++count_of_tier[core.tier];
  uint32_t count = 0;
  uint32_t last = 0;
  for (const auto& [tier, tier_count] : count_of_tier) {
    last = tier;
    count += tier_count;
    if (count >= kCoresEnough) break;
  }
  return last;
}

struct Place {  // one hardware thread
  uint32_t cpu = 0;
  uint32_t tier = 0;
  uint32_t numa_node = 0;
  // Smaller goes first: its place in the order in which workers fill the machine.
  std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t> rank;
};

// All hardware threads in the order in which workers fill them: a core of every cache and node
// before a second one, as each cache and each node has its own way to memory; first threads of
// cores before second ones.
std::vector<Place> FillingOrder(const std::vector<Core>& cores, uint32_t last_tier) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> cores_seen;  // of (tier, cache)
  std::map<uint32_t, std::map<uint32_t, uint32_t>> caches_seen;  // node -> cache -> its index
  std::vector<Place> places;
  for (const Core& core : cores) {
    const uint32_t core_index = cores_seen[{core.tier, core.cache}]++;
    auto& caches = caches_seen[core.numa_node];
    const uint32_t cache_index =
        caches.emplace(core.cache, static_cast<uint32_t>(caches.size())).first->second;
    for (uint32_t thread = 0; thread < core.cpus.size(); ++thread) {
      const bool left_out = core.tier > last_tier;
      const uint32_t round = thread > 0 ? thread + 1 : (left_out ? 1 : 0);
      places.push_back(
          {.cpu = core.cpus[thread],
           .tier = core.tier,
           .numa_node = core.numa_node,
           .rank = {round, core.tier, core_index, cache_index, core.numa_node, core.cpus[thread]}});
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.rank < b.rank; });
  return places;
}

// Makes the first `count` of `places` the plan's workers.
void Settle(std::vector<Place> places, size_t count, WorkerPlan& plan) {
  places.resize(count);
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.numa_node, a.cpu) < std::pair(b.numa_node, b.cpu);
  });
  for (const Place& place : places) {
    if (plan.numa_nodes.empty() || plan.numa_nodes.back() != place.numa_node) {
      plan.numa_nodes.push_back(place.numa_node);
    }
    plan.workers.push_back({.cpu = place.cpu,
                            .tier = place.tier,
                            .node = static_cast<uint32_t>(plan.numa_nodes.size() - 1)});
  }
}

std::string CoresReason(const std::vector<Core>& cores, uint32_t last_tier) {
  size_t threads = 0, used = 0;
  for (const Core& core : cores) {
    if (core.tier > last_tier) continue;
    ++used;
    threads = std::max(threads, core.cpus.size());
  }
  std::string reason = "one per physical core";
  if (used < cores.size()) {
    absl::StrAppend(&reason, " of the faster kind, ", cores.size() - used,
                    " slower cores left out");
  } else if (threads > 1) {
    absl::StrAppend(&reason, ", which has ", threads, " hardware threads");
  }
  return reason;
}

absl::Status PlanNamedCpus(const std::vector<Place>& places, std::span<const uint32_t> allowed,
                           const std::vector<uint32_t>& cpus, WorkerPlan& plan) {
  std::vector<Place> chosen;
  for (const uint32_t cpu : cpus) {
    const auto at =
        std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.cpu == cpu; });
    if (at == places.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cpus: found ", cpu, ", expected CPUs that this process may use: ",
                       allowed.empty() ? "not known here" : FormatCpuList(allowed)));
    }
    chosen.push_back(*at);
  }
  plan.reason = "as asked for";
  Settle(std::move(chosen), cpus.size(), plan);
  return absl::OkStatus();
}

}  // namespace

std::vector<uint32_t> WorkerPlan::cpus() const {
  std::vector<uint32_t> ids;
  for (const PlannedWorker& worker : workers) {
    if (worker.cpu.has_value()) ids.push_back(*worker.cpu);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::StatusOr<WorkerPlan> PlanWorkers(const Topology& topology, std::span<const uint32_t> allowed,
                                       const std::optional<CpuQuota>& quota,
                                       const WorkerRequest& request) {
  const std::vector<Core> cores = AllowedCores(topology, allowed);
  const uint32_t last_tier = LastTier(cores);
  std::vector<Place> places = FillingOrder(cores, last_tier);
  WorkerPlan plan{.allowed_cpu_count = static_cast<uint32_t>(allowed.size()),
                  .core_count = static_cast<uint32_t>(cores.size())};
  if (!request.cpus.empty()) {
    if (const absl::Status named = PlanNamedCpus(places, allowed, request.cpus, plan);
        !named.ok()) {
      return named;
    }
    return plan;
  }
  const auto taking_part = static_cast<uint32_t>(std::count_if(
      cores.begin(), cores.end(), [&](const Core& core) { return core.tier <= last_tier; }));
  uint32_t count = std::max(taking_part, 1u);
  plan.reason = CoresReason(cores, last_tier);
  if (quota.has_value() && quota->cpus < count) {
    count = std::max(1u, static_cast<uint32_t>(quota->cpus));
    plan.reason = absl::StrFormat("%s sets a quota of %.2f CPUs", quota->source, quota->cpus);
  }
  if (request.threads != 0) {
    count = request.threads;
    plan.reason = "as asked for";
  }
  if (count <= places.size()) {
    Settle(std::move(places), count, plan);
    return plan;
  }
  plan.workers.resize(count);
  plan.reason = places.empty() ? "which CPUs are allowed is not known"
                               : absl::StrCat("more than the ", places.size(), " allowed CPUs");
  return plan;
}

std::string DescribePlan(const WorkerPlan& plan) {
  const size_t count = plan.workers.size();
  std::string text = absl::StrCat(count, count == 1 ? " worker" : " workers");
  if (!plan.pinned()) return absl::StrCat(text, ", not pinned: ", plan.reason);
  absl::StrAppend(&text, " pinned to CPU", count == 1 ? " " : "s ", FormatCpuList(plan.cpus()));
  if (plan.numa_nodes.size() > 1) {
    absl::StrAppend(&text, " on ", plan.numa_nodes.size(), " memory nodes");
  }
  return absl::StrCat(text, ": ", plan.reason);
}

}  // namespace hearth
