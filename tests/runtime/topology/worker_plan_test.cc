// The plan for every kind of machine that has been got wrong elsewhere: cpusets with gaps, offline
// CPUs, SMT, hybrid cores, several memory nodes, quotas. No machine is needed.
#include "runtime/topology/worker_plan.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

Ids Range(uint32_t first, uint32_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

struct CoreGroup {
  uint32_t count = 0;
  uint32_t threads = 1;
  uint32_t tier = 0;
  uint32_t cache = 0;
  uint32_t numa_node = 0;
};

// Cores group by group, hardware threads of a core numbered one after the other.
Topology MakeTopology(const std::vector<CoreGroup>& groups) {
  Topology topology;
  uint32_t cpu = 0;
  for (const CoreGroup& group : groups) {
    for (uint32_t i = 0; i < group.count; ++i) {
      topology.cores.push_back({.cpus = Range(cpu, group.threads),
                                .tier = group.tier,
                                .cache = group.cache,
                                .numa_node = group.numa_node});
      cpu += group.threads;
    }
  }
  return topology;
}

Ids AllCpus(const Topology& topology) {
  Ids ids;
  for (const Core& core : topology.cores) ids.insert(ids.end(), core.cpus.begin(), core.cpus.end());
  return ids;
}

WorkerPlan Plan(const Topology& topology, const Ids& allowed, const WorkerRequest& request = {},
                const std::optional<CpuQuota>& quota = {}) {
  const absl::StatusOr<WorkerPlan> plan = PlanWorkers(topology, allowed, quota, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : WorkerPlan{};
}

TEST(WorkerPlan, OneWorkerForEachPhysicalCore) {
  const Topology smt = MakeTopology({{.count = 8, .threads = 2}});
  EXPECT_THAT(Plan(smt, AllCpus(smt)).cpus(), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  const Topology plain = MakeTopology({{.count = 3}});
  EXPECT_THAT(Plan(plain, AllCpus(plain)).cpus(), ElementsAre(0, 1, 2));
  const Topology one = MakeTopology({{.count = 1}});
  EXPECT_THAT(Plan(one, {0}).cpus(), ElementsAre(0));
}

TEST(WorkerPlan, OnlyAllowedCpusAreUsed) {
  const Topology smt = MakeTopology({{.count = 4, .threads = 2}});
  EXPECT_THAT(Plan(smt, {2, 3}).cpus(), ElementsAre(2));     // one core's two threads
  EXPECT_THAT(Plan(smt, {0, 3}).cpus(), ElementsAre(0, 3));  // a gap, and a second thread alone
  EXPECT_THAT(Plan(smt, {1, 5, 7}).cpus(), ElementsAre(1, 5, 7));
}

TEST(WorkerPlan, OfflineCpuIsNoWorkersPlace) {
  Topology topology = MakeTopology({{.count = 4}});
  topology.cores.erase(topology.cores.begin() + 2);  // CPU 2 is offline: neither listed nor allowed
  EXPECT_THAT(Plan(topology, {0, 1, 3}).cpus(), ElementsAre(0, 1, 3));
}

TEST(WorkerPlan, IdsBeyondSixtyFourAreLikeOthers) {
  const Topology big = MakeTopology({{.count = 96, .threads = 2}});
  EXPECT_EQ(Plan(big, AllCpus(big)).workers.size(), 96u);
  EXPECT_THAT(Plan(big, {63, 64, 65, 130, 190}).cpus(), ElementsAre(63, 64, 130, 190));
}

TEST(WorkerPlan, CpuThatTheTopologyDoesNotKnowIsACore) {
  EXPECT_THAT(Plan({}, {4, 5}).cpus(), ElementsAre(4, 5));
  const Topology half = MakeTopology({{.count = 1, .threads = 2}});
  EXPECT_THAT(Plan(half, {0, 1, 7}).cpus(), ElementsAre(0, 7));
}

TEST(WorkerPlan, UnknownCpusMeanOneWorkerThatIsNotPinned) {
  const WorkerPlan plan = Plan({}, {});
  EXPECT_EQ(plan.workers.size(), 1u);
  EXPECT_FALSE(plan.pinned());
}

TEST(WorkerPlan, SlowerCoresStayOutWhereFasterOnesSuffice) {
  // 8P + 12E without SMT, and 8P with SMT + 16E.
  const Topology arrow = MakeTopology({{.count = 8}, {.count = 12, .tier = 1}});
  const WorkerPlan plan = Plan(arrow, AllCpus(arrow));
  EXPECT_EQ(plan.cpus(), Range(0, 8));
  EXPECT_THAT(plan.reason, HasSubstr("12 slower cores left out"));
  const Topology raptor = MakeTopology({{.count = 8, .threads = 2}, {.count = 16, .tier = 1}});
  EXPECT_THAT(Plan(raptor, AllCpus(raptor)).cpus(), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
}

TEST(WorkerPlan, FewFastCoresTakeTheNextKindAlong) {
  const Topology laptop =
      MakeTopology({{.count = 2, .threads = 2}, {.count = 8, .tier = 1}, {.count = 2, .tier = 2}});
  EXPECT_THAT(Plan(laptop, AllCpus(laptop)).cpus(), ElementsAre(0, 2, 4, 5, 6, 7, 8, 9, 10, 11));
  const Topology arm =
      MakeTopology({{.count = 4, .tier = 2}, {.count = 3, .tier = 1}, {.count = 1}});
  EXPECT_THAT(Plan(arm, AllCpus(arm)).cpus(), ElementsAre(4, 5, 6, 7));
  const Topology small = MakeTopology({{.count = 1}, {.count = 2, .tier = 1}});
  EXPECT_THAT(Plan(small, AllCpus(small)).cpus(), ElementsAre(0, 1, 2));
}

TEST(WorkerPlan, SlowCoresServeWhenTheyAreAllThatIsAllowed) {
  const Topology hybrid = MakeTopology({{.count = 8}, {.count = 12, .tier = 1}});
  EXPECT_EQ(Plan(hybrid, Range(8, 12)).cpus(), Range(8, 12));
}

TEST(WorkerPlan, QuotaBoundsTheWorkers) {
  const Topology plain = MakeTopology({{.count = 8}});
  const auto workers = [&](double cpus) {
    return Plan(plain, Range(0, 8), {}, CpuQuota{.cpus = cpus, .source = "cpu.max"}).workers.size();
  };
  EXPECT_EQ(workers(0.5), 1u);
  EXPECT_EQ(workers(1.0), 1u);
  EXPECT_EQ(workers(3.99), 3u);
  EXPECT_EQ(workers(7.9), 7u);
  EXPECT_EQ(workers(8.0), 8u);
  EXPECT_EQ(workers(64.0), 8u);
  const WorkerPlan plan = Plan(plain, Range(0, 8), {}, CpuQuota{.cpus = 2.5, .source = "cpu.max"});
  EXPECT_EQ(plan.reason, "cpu.max sets a quota of 2.50 CPUs");
}

TEST(WorkerPlan, FewerWorkersSpreadOverCachesAndNodes) {
  const Topology server = MakeTopology({{.count = 4, .cache = 0, .numa_node = 0},
                                        {.count = 4, .cache = 1, .numa_node = 0},
                                        {.count = 4, .cache = 2, .numa_node = 1},
                                        {.count = 4, .cache = 3, .numa_node = 1}});
  const auto cpus = [&](uint32_t threads) {
    return Plan(server, AllCpus(server), {.threads = threads}).cpus();
  };
  EXPECT_THAT(cpus(1), ElementsAre(0));
  EXPECT_THAT(cpus(2), ElementsAre(0, 8));
  EXPECT_THAT(cpus(4), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(cpus(6), ElementsAre(0, 1, 4, 8, 9, 12));
}

TEST(WorkerPlan, MoreThreadsTakeSlowerCoresThenSecondHardwareThreads) {
  const Topology hybrid = MakeTopology({{.count = 4, .threads = 2}, {.count = 2, .tier = 1}});
  const auto cpus = [&](uint32_t threads) {
    return Plan(hybrid, AllCpus(hybrid), {.threads = threads}).cpus();
  };
  EXPECT_THAT(cpus(4), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(cpus(6), ElementsAre(0, 2, 4, 6, 8, 9));
  EXPECT_THAT(cpus(7), ElementsAre(0, 1, 2, 4, 6, 8, 9));
  EXPECT_EQ(cpus(10), Range(0, 10));
}

TEST(WorkerPlan, MoreThreadsThanCpusAreNotPinned) {
  const WorkerPlan plan = Plan(MakeTopology({{.count = 2}}), {0, 1}, {.threads = 5});
  EXPECT_EQ(plan.workers.size(), 5u);
  EXPECT_FALSE(plan.pinned());
  EXPECT_EQ(DescribePlan(plan), "5 workers, not pinned: more than the 2 allowed CPUs");
}

TEST(WorkerPlan, ThreadsThatAreAskedForOverrideTheQuota) {
  const Topology plain = MakeTopology({{.count = 8}});
  EXPECT_EQ(Plan(plain, Range(0, 8), {.threads = 6}, CpuQuota{.cpus = 2, .source = "x"}).cpus(),
            (Ids{0, 1, 2, 3, 4, 5}));
}

TEST(WorkerPlan, NamedCpusAreTakenAsTheyAre) {
  const Topology hybrid = MakeTopology({{.count = 4, .threads = 2}, {.count = 8, .tier = 1}});
  EXPECT_THAT(Plan(hybrid, AllCpus(hybrid), {.cpus = {2, 3, 9}}).cpus(), ElementsAre(2, 3, 9));
}

TEST(WorkerPlan, NamedCpuThatIsNotAllowedIsRefused) {
  const Topology plain = MakeTopology({{.count = 4}});
  const absl::Status status = PlanWorkers(plain, Ids{0, 1, 2}, {}, {.cpus = {1, 3}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToStd(status.message()), "cpus: found 3, expected CPUs that this process may use: 0-2");
}

TEST(WorkerPlan, WorkersLieByMemoryNode) {
  // Threads numbered across two nodes, as Linux often does; the second node is called 2.
  Topology server;
  for (uint32_t i = 0; i < 8; ++i) {
    server.cores.push_back({.cpus = {i, i + 8}, .cache = i % 2, .numa_node = i % 2 == 0 ? 0u : 2u});
  }
  const WorkerPlan plan = Plan(server, Range(0, 16));
  EXPECT_THAT(plan.numa_nodes, ElementsAre(0, 2));
  Ids cpus, nodes;
  for (const PlannedWorker& worker : plan.workers) {
    cpus.push_back(worker.cpu.value_or(99));
    nodes.push_back(worker.node);
  }
  EXPECT_THAT(cpus, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(nodes, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(DescribePlan(plan),
            "8 workers pinned to CPUs 0-7 on 2 memory nodes: one per physical core, which has 2 "
            "hardware threads");
}

TEST(WorkerPlan, CountsWhatTheMachineOffers) {
  const Topology smt = MakeTopology({{.count = 4, .threads = 2}});
  const WorkerPlan plan = Plan(smt, Range(0, 7));
  EXPECT_EQ(plan.allowed_cpu_count, 7u);
  EXPECT_EQ(plan.core_count, 4u);
  EXPECT_EQ(DescribePlan(Plan(smt, {5})), "1 worker pinned to CPU 5: one per physical core");
}

}  // namespace
}  // namespace hearth
