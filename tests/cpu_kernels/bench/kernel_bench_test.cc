// The measuring: which items and shares run, what a known time comes out as, what is refused.
#include "cpu_kernels/bench/kernel_bench.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu_kernels/bench/bench_data.h"
#include "cpu_kernels/bench/bench_shape.h"
#include "cpu_kernels/bench/kernel_catalogue.h"
#include "runtime/base/units.h"
#include "tests/cpu_kernels/bench/ticking_clock.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTickNs = 1'000'000;
constexpr CacheBytes kCaches = {.l1d = 32_KiB, .l2 = 1_MiB, .l3 = 4_MiB};

KernelBenchOptions ScalarOptions() {
  KernelBenchOptions options;
  options.kernels = {FindCpuKernels("scalar")};
  options.rows = {1};
  options.memory_bytes = 16_MiB;
  options.case_ns = 3 * kTickNs;
  options.sample_count_min = options.sample_count_max = 3;
  options.caches = kCaches;
  return options;
}

// A benchmark and the teams that it runs on.
struct Bench {
  Bench(const KernelBenchOptions& options, std::vector<uint32_t> thread_counts, Clock& clock) {
    std::vector<WorkerTeam*> borrowed;
    for (const uint32_t count : thread_counts) {
      teams.push_back(std::make_unique<WorkerTeam>(count));
      borrowed.push_back(teams.back().get());
    }
    auto made = KernelBench::Create(options, borrowed, 1_GiB, clock);
    EXPECT_TRUE(made.ok()) << made.status();
    kernels = *std::move(made);
  }
  std::vector<CaseResult> Measure(const KernelFamily& family) {
    return kernels->Measure(family, [](uint64_t) {});
  }
  std::vector<std::unique_ptr<WorkerTeam>> teams;
  std::unique_ptr<KernelBench> kernels;
};

// Who ran what, told by items' addresses.
struct Log {
  std::mutex mutex;
  std::map<const std::byte*, uint32_t> runs_of_share;  // of one item, times shares
  std::set<std::pair<uint32_t, uint32_t>> ranges;
};

class LoggingWorkload final : public KernelWorkload {
 public:
  LoggingWorkload(const WorkloadFacts& facts, Log* log, TickingClock* clock, int64_t run_ns)
      : KernelWorkload(facts), log_(log), clock_(clock), run_ns_(run_ns) {}
  void Run(const CpuKernels&, const BenchItem& item, uint32_t, uint32_t begin,
           uint32_t end) const override {
    std::lock_guard lock(log_->mutex);
    log_->runs_of_share[item.in] += splits() ? end - begin : 1;
    log_->ranges.insert({begin, end});
    clock_->Advance(run_ns_);
  }

 private:
  Log* const log_;
  TickingClock* const clock_;
  const int64_t run_ns_;
};

KernelFamily LoggingFamily(WorkloadFacts facts, Log* log, TickingClock* clock, int64_t run_ns) {
  facts.touched_bytes = facts.moved_bytes = facts.in_bytes;
  return {.name = "logging", .shape = "any", .fill = FillFloats, .make = [=](uint32_t, uint32_t) {
            return std::make_unique<LoggingWorkload>(facts, log, clock, run_ns);
          }};
}

TEST(KernelBenchTest, LevelsFollowTheCaches) {
  EXPECT_EQ(LevelOf(kCaches, 32_KiB, 1), MemoryLevel::kL1);
  EXPECT_EQ(LevelOf(kCaches, 1_MiB, 4), MemoryLevel::kL2);
  EXPECT_EQ(LevelOf(kCaches, 2_MiB, 2), MemoryLevel::kL3);
  EXPECT_EQ(LevelOf(kCaches, 2_MiB, 3), MemoryLevel::kDram);
  EXPECT_EQ(LevelOf({}, 1, 1), MemoryLevel::kDram);
}

TEST(KernelBenchTest, EveryFamilyIsMeasuredInEveryCase) {
  TickingClock clock(kTickNs);
  KernelBenchOptions options = ScalarOptions();
  options.rows = {1, 3};
  options.memory_bytes = 4_MiB;
  options.case_ns = kTickNs;
  options.sample_count_min = options.sample_count_max = 1;
  const Bench bench(options, {1, 2}, clock);
  for (const KernelFamily& family : AllKernelFamilies(FlashletShape())) {
    uint64_t done = 0;
    const std::vector<CaseResult> results =
        bench.kernels->Measure(family, [&](uint64_t cases) { done = cases; });
    EXPECT_EQ(results.size(), bench.kernels->CaseCount(family));
    EXPECT_EQ(results.size(), family.rows_matter ? 8u : 4u) << family.name;
    EXPECT_EQ(done, results.size());
    for (const CaseResult& c : results) {
      EXPECT_EQ(c.not_measured, "") << family.name;
      EXPECT_TRUE(std::isfinite(c.run_ns) && c.run_ns > 0) << family.name;
      EXPECT_LE(c.best_run_ns, c.run_ns) << family.name;
      EXPECT_GT(c.bytes_per_sec(), 0) << family.name;
      EXPECT_GT(c.read_fraction(), 0) << family.name;
      EXPECT_EQ(c.weights_per_sec() > 0, c.facts.weight_count > 0) << family.name;
    }
  }
}

TEST(KernelBenchTest, AKnownTimeComesOut) {
  TickingClock clock(kTickNs);
  Log log;
  KernelBenchOptions options = ScalarOptions();
  options.rows = {4};
  const KernelFamily family = LoggingFamily(
      {.in_bytes = 1_MiB, .weight_count = 2'000'000, .share_count = 4, .runs_per_job = 2}, &log,
      &clock, 100 * kTickNs);
  for (const CaseResult& c : Bench(options, {1}, clock).Measure(family)) {
    EXPECT_NEAR(c.run_ns, 100.0 * kTickNs, kTickNs);  // the two looks at the clock are one tick
    EXPECT_NEAR(c.row_ns(), 25.0 * kTickNs, kTickNs);
    EXPECT_NEAR(c.weights_per_sec(), 20e6, 0.2e6);
    EXPECT_NEAR(c.bytes_per_sec(), 10.0 * 1_MiB, 0.1 * 1_MiB);
    EXPECT_EQ(c.spread, 0);
    EXPECT_EQ(c.sample_count, 3u);
  }
}

TEST(KernelBenchTest, SlowCasesTakeTheFewestSamples) {
  TickingClock clock(kTickNs);
  Log log;
  KernelBenchOptions options = ScalarOptions();
  options.sample_count_min = 2;
  options.sample_count_max = 5;
  options.case_ns = 50 * kTickNs;
  for (const auto& [run_ticks, samples] : {std::pair(100, 2u), std::pair(20, 3u)}) {
    const KernelFamily family =
        LoggingFamily({.in_bytes = 1_MiB, .share_count = 1}, &log, &clock, run_ticks * kTickNs);
    for (const CaseResult& c : Bench(options, {1}, clock).Measure(family)) {
      EXPECT_EQ(c.sample_count, samples);
    }
  }
}

TEST(KernelBenchTest, AWalkTakesEveryItemInTurnAndEveryShareOnce) {
  TickingClock clock(kTickNs);
  Log log;
  KernelBenchOptions options = ScalarOptions();
  options.residences = {Residence::kDram};
  options.case_ns = 120 * kTickNs;  // enough jobs to get round
  const KernelFamily family =
      LoggingFamily({.in_bytes = 1_MiB, .share_count = 5, .runs_per_job = 3}, &log, &clock, 0);
  Bench(options, {2}, clock).Measure(family);
  ASSERT_EQ(log.runs_of_share.size(), 16u);
  uint32_t least = UINT32_MAX, most = 0;
  for (const auto& [item, shares] : log.runs_of_share) {
    EXPECT_EQ(shares % 5, 0u);
    least = std::min(least, shares / 5);
    most = std::max(most, shares / 5);
  }
  EXPECT_LE(most - least, 1u);
}

TEST(KernelBenchTest, InACacheWorkersKeepTheirShareOrTheirItem) {
  for (const uint32_t share_count : {0u, 4u}) {
    TickingClock clock(kTickNs);
    Log log;
    KernelBenchOptions options = ScalarOptions();
    options.residences = {Residence::kCache};
    const KernelFamily family = LoggingFamily(
        {.in_bytes = 64_KiB, .share_count = share_count, .runs_per_job = 3}, &log, &clock, 0);
    Bench(options, {2}, clock).Measure(family);
    EXPECT_EQ(log.runs_of_share.size(), share_count == 0 ? 2u : 1u);
    if (share_count != 0) {
      // Whatever the pieces, every share once.
      std::vector<bool> seen(4, false);
      for (const auto& [begin, end] : log.ranges) {
        for (uint32_t share = begin; share < end; ++share) {
          EXPECT_FALSE(seen.at(share)) << share;
          seen.at(share) = true;
        }
      }
      EXPECT_THAT(seen, testing::Each(true));
    }
  }
}

TEST(KernelBenchTest, ReadRatesCoverTheLevelsOfEveryTeam) {
  TickingClock clock(kTickNs);
  const std::vector<ReadRate> rates =
      Bench(ScalarOptions(), {1, 2}, clock).kernels->MeasureReadRates();
  std::vector<std::pair<uint32_t, MemoryLevel>> found;
  for (const ReadRate& rate : rates) {
    found.emplace_back(rate.thread_count, rate.level);
    EXPECT_GT(rate.bytes_per_sec, 0);
  }
  using enum MemoryLevel;
  EXPECT_THAT(found,
              testing::ElementsAre(std::pair(1u, kL1), std::pair(1u, kL2), std::pair(1u, kL3),
                                   std::pair(1u, kDram), std::pair(2u, kL1), std::pair(2u, kL2),
                                   std::pair(2u, kL3), std::pair(2u, kDram)));
}

TEST(KernelBenchTest, ImpossibleMemoryIsRefused) {
  TickingClock clock(kTickNs);
  WorkerTeam team(1);
  WorkerTeam* const teams[] = {&team};
  KernelBenchOptions options = ScalarOptions();
  const auto more = KernelBench::Create(options, teams, 16_MiB - 1, clock);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("memory: 16.0 MiB"));
  options.memory_bytes = 1000;
  EXPECT_EQ(KernelBench::Create(options, teams, 1_GiB, clock).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KernelBenchTest, AnItemThatDoesNotFitIsReportedNotMeasured) {
  TickingClock clock(kTickNs);
  Log log;
  const KernelFamily family = LoggingFamily({.in_bytes = 12_MiB}, &log, &clock, 0);
  const std::vector<CaseResult> results = Bench(ScalarOptions(), {1, 2}, clock).Measure(family);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].not_measured, "");  // cache, one thread: one item
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i].not_measured, "needs --memory 24.0 MiB");
    EXPECT_EQ(results[i].run_ns, 0);
  }
}

}  // namespace
}  // namespace hearth
