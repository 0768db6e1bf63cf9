// A team runs every index exactly once, job after job, awake or parked, with any number of workers.
#include "runtime/base/worker_team.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/base/spin_wait.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Range&) const = default;
};

// All pieces of a job in rising order. Plain memory for each worker on purpose: under TSan this
// proves that a job's writes are visible when ForRanges returns, and that no two calls at a time
// have one worker index.
std::vector<Range> RangesOf(WorkerTeam& team, uint32_t count, uint32_t grain) {
  std::vector<std::vector<Range>> ranges_of(team.worker_count());
  team.ForRanges(count, grain, [&](uint32_t worker, uint32_t begin, uint32_t end) {
    ranges_of[worker].push_back({begin, end});
  });
  std::vector<Range> ranges;
  for (const std::vector<Range>& own : ranges_of)
    ranges.insert(ranges.end(), own.begin(), own.end());
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

TEST(WorkerTeam, RangesCoverEveryIndexOnceInMultiplesOfTheGrain) {
  for (const uint32_t workers : {1u, 2u, 3u, 7u}) {
    WorkerTeam team(workers);
    for (const uint32_t count : {1u, 2u, 6u, 7u, 64u, 100u, 1001u}) {
      for (const uint32_t grain : {1u, 3u, 16u, 2000u}) {
        const std::vector<Range> ranges = RangesOf(team, count, grain);
        uint32_t next = 0;
        for (const Range& r : ranges) {
          ASSERT_EQ(r.begin, next) << workers << " " << count << " " << grain;
          ASSERT_LT(r.begin, r.end);
          ASSERT_EQ(r.begin % grain, 0u);
          ASSERT_TRUE(r.end % grain == 0 || r.end == count);
          next = r.end;
        }
        ASSERT_EQ(next, count) << workers << " " << grain;
        ASSERT_LE(ranges.size(), size_t{workers} * WorkerTeam::kPiecesPerShare);
      }
    }
  }
}

TEST(WorkerTeam, SplitIsAFunctionOfItsArguments) {
  WorkerTeam a(3);
  WorkerTeam b(3);
  const std::vector<Range> first = RangesOf(a, 1000, 16);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(RangesOf(a, 1000, 16), first);
    EXPECT_EQ(RangesOf(b, 1000, 16), first);
  }
}

TEST(WorkerTeam, AsManyGrainsAsWorkersRunUnderTheirOwnIndex) {
  WorkerTeam team(5);
  for (const uint32_t count : {1u, 5u}) {
    for (int job = 0; job < 50; ++job) {
      std::vector<uint32_t> worker_of(count, UINT32_MAX);
      team.ForRanges(count, 1, [&](uint32_t worker, uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; ++i) worker_of[i] = worker;
      });
      if (count == 1) continue;  // a single grain lies in some share
      for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(worker_of[i], i);
    }
  }
}

// One worker's share holds all the work: it is split among all, whoever is awake.
TEST(WorkerTeam, NoWorkerIndexRunsTwiceAtATime) {
  WorkerTeam team(4);
  std::vector<std::atomic<uint32_t>> busy(team.worker_count());
  for (int job = 0; job < 200; ++job) {
    team.ForRanges(100, 1, [&](uint32_t worker, uint32_t begin, uint32_t end) {
      EXPECT_EQ(busy[worker].fetch_add(1), 0u);
      for (SpinWait wait; begin < end; ++begin) wait.Pause();
      busy[worker].fetch_sub(1);
    });
  }
}

TEST(WorkerTeam, AllocatesNothingWhileItWorks) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  WorkerTeam team(3);
  std::atomic<uint64_t> sum{0};
  const uint64_t before = AllocationCount();
  for (int job = 0; job < 100; ++job) {
    team.ForRanges(64, 4, [&](uint32_t, uint32_t begin, uint32_t end) { sum += end - begin; });
    team.ForEach(10, [&](uint32_t, uint32_t) { ++sum; });
  }
  EXPECT_EQ(AllocationCount(), before);
  EXPECT_EQ(sum.load(), 7400u);
}

TEST(WorkerTeam, LargestCountDoesNotOverflow) {
  WorkerTeam team(3);
  const std::vector<Range> ranges = RangesOf(team, UINT32_MAX, 16);
  EXPECT_EQ(ranges.front().begin, 0u);
  EXPECT_EQ(ranges.back().end, UINT32_MAX);
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].begin, ranges[i - 1].end);
}

TEST(WorkerTeam, NothingToDoRunsNothing) {
  WorkerTeam team(2);
  team.ForRanges(0, 1, [](uint32_t, uint32_t, uint32_t) { FAIL(); });
  team.ForEach(0, [](uint32_t, uint32_t) { FAIL(); });
  EXPECT_EQ(RangesOf(team, 5, 0), RangesOf(team, 5, 1));  // a grain of 0 counts as 1
}

TEST(WorkerTeam, ForEachHandsOutEveryIndexOnce) {
  for (const uint32_t workers : {1u, 2u, 5u}) {
    WorkerTeam team(workers);
    for (const uint32_t count : {1u, 3u, 1000u}) {
      std::vector<uint32_t> seen(count);  // each index is touched by one worker only
      std::vector<uint32_t> worker_of(count, UINT32_MAX);
      team.ForEach(count, [&](uint32_t worker, uint32_t index) {
        ++seen[index];
        worker_of[index] = worker;
      });
      EXPECT_THAT(seen, ::testing::Each(1u));
      EXPECT_THAT(worker_of, ::testing::Each(::testing::Lt(workers)));
    }
  }
}

TEST(WorkerTeam, ManyJobsSeeEachOthersResults) {
  // Each job reads what the former one wrote, on whichever worker: a missing fence gives a wrong
  // sum.
  WorkerTeam team(4);
  constexpr uint32_t kCount = 64;
  std::vector<uint64_t> a(kCount, 1);
  std::vector<uint64_t> b(kCount);
  for (int job = 0; job < 100; ++job) {
    team.ForRanges(kCount, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) b[i] = a[(i + 17) % kCount] + 1;
    });
    std::swap(a, b);
  }
  EXPECT_THAT(a, ::testing::Each(101u));
}

TEST(WorkerTeam, WorksWithMoreWorkersThanCores) {
  WorkerTeam team(std::thread::hardware_concurrency() * 2 + 3);
  uint64_t sum = 0;
  for (int job = 0; job < 20; ++job) {
    std::vector<uint64_t> parts(team.worker_count());
    team.ForRanges(1000, 1, [&](uint32_t worker, uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) parts[worker] += i;
    });
    sum += std::accumulate(parts.begin(), parts.end(), uint64_t{0});
  }
  EXPECT_EQ(sum, 20u * 499500u);
}

TEST(WorkerTeam, ParkedWorkersWakeForTheNextJob) {
  WorkerTeam team(3);
  Prng prng(1);
  for (int job = 0; job < 30; ++job) {
    std::vector<uint32_t> seen(30);
    team.ForEach(30, [&](uint32_t, uint32_t index) { ++seen[index]; });
    ASSERT_THAT(seen, ::testing::Each(1u));
    // From no pause to well past the time after which workers park, so that jobs meet both states
    // and the moment between them.
    std::this_thread::sleep_for(std::chrono::microseconds(prng.Below(3000)));
  }
}

TEST(WorkerTeam, EndsWhileParkedSpinningOrNeverUsed) {
  for (int i = 0; i < 10; ++i) {
    auto team = std::make_unique<WorkerTeam>(4);
    if (i % 2 == 0) team->ForRanges(8, 1, [](uint32_t, uint32_t, uint32_t) {});
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    team.reset();
  }
}

TEST(WorkerTeam, OneWorkerRunsOnTheCallingThread) {
  WorkerTeam team(1);
  std::thread::id runner;
  team.ForRanges(10, 1, [&](uint32_t, uint32_t, uint32_t) { runner = std::this_thread::get_id(); });
  EXPECT_EQ(runner, std::this_thread::get_id());
}

}  // namespace
}  // namespace hearth
