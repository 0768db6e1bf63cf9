// Pinning puts every worker on its CPU, lets the caller go afterwards, and gives up as a whole when
// one CPU is refused.
#include "runtime/topology/worker_binding.h"

#include <map>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/cpus.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<uint32_t>;

WorkerPlan PlanOf(const Ids& cpus) {
  WorkerPlan plan;
  for (const uint32_t cpu : cpus) plan.workers.push_back({.cpu = cpu});
  return plan;
}

class FakeBinder final : public ThreadBinder {
 public:
  explicit FakeBinder(uint32_t refused_cpu = UINT32_MAX) : refused_cpu_(refused_cpu) {}
  absl::Status Bind(std::thread::native_handle_type thread,
                    std::span<const uint32_t> cpus) override {
    ++call_count;
    if (cpus.size() == 1 && cpus.front() == refused_cpu_) {
      return absl::InvalidArgumentError("no such CPU");
    }
    cpus_of[thread] = {cpus.begin(), cpus.end()};
    return absl::OkStatus();
  }
  std::map<std::thread::native_handle_type, Ids> cpus_of;
  int call_count = 0;

 private:
  uint32_t refused_cpu_;
};

TEST(WorkerBinding, EveryWorkerGetsItsCpu) {
  WorkerTeam team(3);
  FakeBinder binder;
  {
    const WorkerBinding binding(team, PlanOf({4, 6, 70}), binder);
    EXPECT_TRUE(binding.pinned());
    EXPECT_EQ(binding.status(), absl::OkStatus());
    EXPECT_THAT(binder.cpus_of[pthread_self()], ElementsAre(4));
    EXPECT_THAT(binder.cpus_of[team.thread(1)], ElementsAre(6));
    EXPECT_THAT(binder.cpus_of[team.thread(2)], ElementsAre(70));
  }
  EXPECT_EQ(binder.cpus_of[pthread_self()], AllowedCpus());
  EXPECT_THAT(binder.cpus_of[team.thread(1)], ElementsAre(6));
}

TEST(WorkerBinding, OneRefusalLeavesNobodyPinned) {
  WorkerTeam team(3);
  FakeBinder binder(6);
  const WorkerBinding binding(team, PlanOf({4, 6, 70}), binder);
  EXPECT_FALSE(binding.pinned());
  EXPECT_EQ(binding.status().message(), "no such CPU");
  EXPECT_EQ(binder.cpus_of[pthread_self()], AllowedCpus());
  EXPECT_EQ(binder.cpus_of[team.thread(2)], AllowedCpus());
}

TEST(WorkerBinding, PlanWithoutCpusPinsNobody) {
  WorkerTeam team(2);
  FakeBinder binder;
  WorkerPlan plan;
  plan.workers.resize(2);
  {
    const WorkerBinding binding(team, plan, binder);
    EXPECT_FALSE(binding.pinned());
    EXPECT_EQ(binding.status(), absl::OkStatus());
  }
  EXPECT_EQ(binder.call_count, 0);
}

TEST(WorkerBinding, WorksOnThisMachineAndJobsStillRun) {
  auto machine = Machine::Read();
  ASSERT_TRUE(machine.ok()) << machine.status();
  const Ids before = AllowedCpus();
  const auto plan = PlanWorkers((*machine)->topology(), before, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  WorkerTeam team(static_cast<uint32_t>(plan->workers.size()));
  std::vector<Ids> seen(team.worker_count());
  {
    const WorkerBinding binding(team, *plan, **machine);
    EXPECT_EQ(binding.status(), absl::OkStatus());
    EXPECT_THAT(AllowedCpus(), ElementsAre(*plan->workers[0].cpu));
    uint64_t sum = 0;
    for (int job = 0; job < 100; ++job) {
      Ids parts(team.worker_count());
      team.ForRanges(1000, 1, [&](uint32_t w, uint32_t b, uint32_t e) { parts[w] += e - b; });
      for (const uint32_t part : parts) sum += part;
    }
    EXPECT_EQ(sum, 100'000u);
  }
  EXPECT_EQ(AllowedCpus(), before);
}

}  // namespace
}  // namespace hearth
