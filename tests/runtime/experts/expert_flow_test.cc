// The flow hands out every band of every expert exactly once, in an order that never lets a piece
// start before what it needs, on one memory node and on several, whatever arrives late, whenever
// and in whatever order.
#include "runtime/experts/expert_flow.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/base/worker_team.h"
#include "tests/support/allocation_count.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

using ::testing::Each;

constexpr FlowShape kShape = {.gate_up_band_count = 40, .down_band_count = 160};

std::vector<FlowJob> RandomJobs(uint64_t seed, uint32_t count, uint32_t node_count) {
  Prng prng(seed);
  std::vector<FlowJob> jobs(count);
  for (FlowJob& job : jobs) {
    job = {.rows = 1 + static_cast<uint32_t>(prng.Below(9)),
           .node = static_cast<uint32_t>(prng.Below(node_count)),
           .prepared = prng.Below(2) == 0};
  }
  return jobs;
}

// What has been run so far, by one thread.
struct Trace {
  Trace(const std::vector<FlowJob>& of, const FlowShape& shape)
      : jobs(of),
        prepared(of.size()),
        gate_up(of.size(), std::vector<uint32_t>(shape.gate_up_band_count)),
        down(of.size(), std::vector<uint32_t>(shape.down_band_count)),
        hidden(of.size()) {}
  void Run(ExpertFlow& flow, const FlowPiece& piece) {
    if (piece.phase == FlowPhase::kPrepare) {
      ++prepared[piece.job];
    } else {
      auto& bands = piece.phase == FlowPhase::kGateUp ? gate_up : down;
      ASSERT_LT(piece.band_begin, piece.band_end);
      for (uint32_t b = piece.band_begin; b < piece.band_end; ++b) ++bands.at(piece.job).at(b);
      if (piece.phase == FlowPhase::kDown) {
        EXPECT_EQ(hidden[piece.job], 1u);
      } else {
        EXPECT_EQ(prepared[piece.job], jobs[piece.job].prepared ? 0u : 1u);
      }
    }
    if (flow.Finish(piece) == FlowEvent::kHiddenComplete) {
      EXPECT_THAT(gate_up[piece.job], Each(1u));
      ++hidden[piece.job];
      flow.PublishHidden(piece.job);
    }
  }
  void ExpectAllDone() const {
    for (size_t j = 0; j < jobs.size(); ++j) {
      EXPECT_EQ(prepared[j], jobs[j].prepared ? 0u : 1u);
      EXPECT_THAT(gate_up[j], Each(1u));
      EXPECT_THAT(down[j], Each(1u));
      EXPECT_EQ(hidden[j], 1u);
    }
  }
  const std::vector<FlowJob>& jobs;
  std::vector<uint32_t> prepared;
  std::vector<std::vector<uint32_t>> gate_up, down;
  std::vector<uint32_t> hidden;
};

TEST(ExpertFlow, OneWorkerRunsEveryBandOnceInOrder) {
  for (const uint32_t count : {0u, 1u, 2u, 10u, 40u}) {
    ExpertFlow flow(40, 1, 1);
    const std::vector<FlowJob> jobs = RandomJobs(count, count, 1);
    Trace trace(jobs, kShape);
    flow.Begin(jobs, kShape);
    for (FlowPiece piece; flow.Next(0, &piece);) trace.Run(flow, piece);
    trace.ExpectAllDone();
  }
}

// Under TSan this also proves that the hidden rows of an expert are visible to its down pieces.
TEST(ExpertFlow, ManyWorkersShareTheBandsAndWaitForEachOther) {
  WorkerTeam team(5);
  for (const uint32_t node_count : {1u, 2u, 3u}) {
    ExpertFlow flow(64, team.worker_count(), node_count);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const auto count = static_cast<uint32_t>(seed % 20 + 1);
      const std::vector<FlowJob> jobs = RandomJobs(seed, count, node_count);
      std::vector<uint32_t> input(count), hidden(count);  // plain memory, one writer each
      std::vector<std::vector<uint32_t>> partial(count, std::vector<uint32_t>(40));
      std::vector<std::vector<uint32_t>> result(count, std::vector<uint32_t>(160));
      flow.Begin(jobs, kShape);
      team.ForRanges(team.worker_count(), 1, [&](uint32_t worker, uint32_t, uint32_t) {
        for (FlowPiece piece; flow.Next(worker % node_count, &piece);) {
          const uint32_t j = piece.job;
          for (uint32_t b = piece.band_begin; b < piece.band_end; ++b) {
            if (piece.phase == FlowPhase::kPrepare) input[j] += 7;
            if (piece.phase == FlowPhase::kGateUp) partial[j][b] += input[j] + 1;
            if (piece.phase == FlowPhase::kDown) result[j][b] += hidden[j];
          }
          if (flow.Finish(piece) == FlowEvent::kHiddenComplete) {
            for (const uint32_t part : partial[j]) hidden[j] += part;
            flow.PublishHidden(j);
          }
        }
      });
      for (uint32_t j = 0; j < count; ++j) {
        ASSERT_THAT(result[j], Each(40u * (jobs[j].prepared ? 1u : 8u))) << seed << " " << j;
      }
    }
  }
}

TEST(ExpertFlow, WorkersTakeTheirOwnNodesPiecesFirst) {
  ExpertFlow flow(8, 4, 2);
  std::vector<FlowJob> jobs(8);
  for (uint32_t j = 0; j < 8; ++j) jobs[j] = {.rows = 1, .node = j % 2, .prepared = true};
  Trace trace(jobs, kShape);
  flow.Begin(jobs, kShape);
  bool left_own_node = false;
  uint32_t own_bands = 0;
  for (FlowPiece piece; flow.Next(1, &piece);) {
    left_own_node |= jobs[piece.job].node != 1;
    EXPECT_TRUE(!left_own_node || jobs[piece.job].node == 0);
    if (jobs[piece.job].node == 1) own_bands += piece.band_end - piece.band_begin;
    trace.Run(flow, piece);
  }
  EXPECT_EQ(own_bands, 4u * 200u);
  EXPECT_TRUE(left_own_node);  // and then helps the other node
  trace.ExpectAllDone();
}

TEST(ExpertFlow, PiecesShrinkToTheLeastTowardsTheEndOfAPhase) {
  ExpertFlow flow(10, 8, 1);
  const std::vector<FlowJob> jobs(10, {.rows = 1, .prepared = true});
  const FlowShape shape = {.gate_up_band_count = 40,
                           .down_band_count = 160,
                           .gate_up_piece_bands_min = 1,
                           .down_piece_bands_min = 3};
  flow.Begin(jobs, shape);
  std::vector<FlowPiece> pieces;
  for (FlowPiece piece; flow.Next(0, &piece);) {
    pieces.push_back(piece);
    if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
  }
  const auto bands = [](const FlowPiece& p) { return p.band_end - p.band_begin; };
  EXPECT_EQ(bands(pieces.front()), 16u);  // a third of an eighth of 400
  EXPECT_LE(bands(pieces.back()), 3u);
  EXPECT_LT(pieces.size(), 250u);
  for (const FlowPiece& piece : pieces) {
    EXPECT_TRUE(piece.phase != FlowPhase::kDown || piece.band_end == 160 || bands(piece) >= 3u);
  }
}

TEST(ExpertFlow, ExpertWithManyRowsIsCutFiner) {
  ExpertFlow flow(2, 4, 1);
  const std::vector<FlowJob> jobs = {{.rows = 1, .prepared = true},
                                     {.rows = 100, .prepared = true}};
  flow.Begin(jobs, kShape);
  uint32_t count[2] = {};
  for (FlowPiece piece; flow.Next(0, &piece);) {
    if (piece.phase == FlowPhase::kGateUp) ++count[piece.job];
    if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
  }
  EXPECT_EQ(count[0], 1u);
  EXPECT_GE(count[1], 10u);
}

TEST(ExpertFlow, AllocatesNothingAfterCreation) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  WorkerTeam team(3);
  ExpertFlow flow(16, 3, 2);
  const std::vector<FlowJob> jobs = RandomJobs(1, 16, 2);
  const uint64_t before = AllocationCount();
  for (int layer = 0; layer < 50; ++layer) {
    flow.Begin(jobs, kShape);
    team.ForRanges(3, 1, [&](uint32_t worker, uint32_t, uint32_t) {
      for (FlowPiece piece; flow.Next(worker % 2, &piece);) {
        if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
      }
    });
  }
  EXPECT_EQ(AllocationCount(), before);
}

// Late jobs.

// When each late job of a layer is announced.
enum class Timing { kBeforeTheFork, kFromAnotherThread, kOneByOneByAWorker };

struct LateLayer {
  std::vector<FlowJob> jobs;
  std::vector<uint32_t> order;  // of arrival: the late jobs
  std::vector<uint8_t> usable;  // by job
};

LateLayer RandomLateLayer(uint64_t seed, uint32_t count, uint32_t node_count, uint32_t late_percent,
                          uint32_t unusable_percent) {
  LateLayer layer{.jobs = RandomJobs(seed, count, node_count), .order = {}, .usable = {}};
  Prng prng(seed + 1000);
  layer.usable.assign(count, 1);
  for (uint32_t j = 0; j < count; ++j) {
    layer.jobs[j].late = prng.Below(100) < late_percent;
    if (!layer.jobs[j].late) continue;
    layer.order.push_back(j);
    layer.usable[j] = prng.Below(100) >= unusable_percent ? 1 : 0;
  }
  for (size_t i = layer.order.size(); i > 1; --i) {
    std::swap(layer.order[i - 1], layer.order[prng.Below(i)]);
  }
  return layer;
}

// What many workers did with one layer; plain memory with one writer at a time, so that TSan proves
// that whoever announced a job's weights is seen by those who read them.
struct LateRun {
  LateRun(const LateLayer& of, const FlowShape& shape)
      : layer(of),
        weights(of.jobs.size()),
        input(of.jobs.size()),
        hidden(of.jobs.size()),
        partial(of.jobs.size(), std::vector<uint32_t>(shape.gate_up_band_count)),
        result(of.jobs.size(), std::vector<uint32_t>(shape.down_band_count)),
        done(of.jobs.size()) {
    for (size_t j = 0; j < layer.jobs.size(); ++j) weights[j] = layer.jobs[j].late ? 0 : 5;
  }
  void Arrive(ExpertFlow& flow, uint32_t job) {
    if (layer.usable[job] != 0) weights[job] = 5;
    flow.Arrive(job, layer.usable[job] != 0);
  }
  void Work(ExpertFlow& flow, uint32_t node) {
    for (FlowPiece piece; flow.Next(node, &piece);) {
      const uint32_t j = piece.job;
      for (uint32_t b = piece.band_begin; b < piece.band_end; ++b) {
        if (piece.phase == FlowPhase::kPrepare) input[j] += 7;
        if (piece.phase == FlowPhase::kGateUp) partial[j][b] += weights[j] * (input[j] + 1);
        if (piece.phase == FlowPhase::kDown) result[j][b] += hidden[j];
      }
      const FlowEvent event = flow.Finish(piece);
      if (event == FlowEvent::kHiddenComplete) {
        for (const uint32_t part : partial[j]) hidden[j] += part;
        flow.PublishHidden(j);
      } else if (event == FlowEvent::kExpertDone) {
        ++done[j];
      }
    }
  }
  void Expect(uint64_t seed) const {
    for (size_t j = 0; j < layer.jobs.size(); ++j) {
      const uint32_t usable = layer.usable[j];
      const uint32_t bands = static_cast<uint32_t>(partial[j].size());
      const uint32_t value = usable * bands * 5 * (layer.jobs[j].prepared ? 1u : 8u);
      ASSERT_THAT(result[j], Each(value)) << "seed " << seed << " job " << j;
      ASSERT_EQ(done[j], usable) << "seed " << seed << " job " << j;
      ASSERT_EQ(input[j], usable != 0 && !layer.jobs[j].prepared ? 7u : 0u) << "job " << j;
    }
  }
  const LateLayer& layer;
  std::vector<uint32_t> weights, input, hidden;
  std::vector<std::vector<uint32_t>> partial, result;
  std::vector<uint32_t> done;
};

struct LateCase {
  uint32_t worker_count;
  uint32_t node_count;
  uint32_t late_percent;
  uint32_t unusable_percent;
  Timing timing;
};

class ExpertFlowLate : public testing::TestWithParam<LateCase> {};

TEST_P(ExpertFlowLate, RunsEveryBandOfWhatComesOnceAndNothingOfWhatDoesNot) {
  const LateCase& c = GetParam();
  WorkerTeam team(c.worker_count);
  ExpertFlow flow(64, c.worker_count, c.node_count);
  Prng prng(c.worker_count);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto count = static_cast<uint32_t>(seed % 24 + 1);
    const LateLayer layer =
        RandomLateLayer(seed, count, c.node_count, c.late_percent, c.unusable_percent);
    const FlowShape shape = {.gate_up_band_count = 5 + static_cast<uint32_t>(seed % 3) * 16,
                             .down_band_count = 20,
                             .gate_up_piece_bands_min = 1 + static_cast<uint32_t>(seed % 7),
                             .down_piece_bands_min = 3};
    LateRun run(layer, shape);
    flow.Begin(layer.jobs, shape);
    std::thread drive;
    if (c.timing == Timing::kBeforeTheFork) {
      for (const uint32_t job : layer.order) run.Arrive(flow, job);
    } else if (c.timing == Timing::kFromAnotherThread) {
      drive = std::thread([&, delay_us = prng.Below(200)] {
        for (const uint32_t job : layer.order) {
          if (delay_us % 3 != 0) YieldFor(static_cast<int64_t>(delay_us));
          run.Arrive(flow, job);
        }
      });
    }
    std::atomic<size_t> next{0};
    team.ForRanges(c.worker_count, 1, [&](uint32_t worker, uint32_t, uint32_t) {
      if (c.timing == Timing::kOneByOneByAWorker) {  // each announces some before it starts
        for (size_t i; (i = next.fetch_add(1)) < layer.order.size();) {
          run.Arrive(flow, layer.order[i]);
        }
      }
      run.Work(flow, worker % c.node_count);
    });
    if (drive.joinable()) drive.join();
    run.Expect(seed);
  }
}

std::vector<LateCase> LateCases() {
  std::vector<LateCase> cases;
  for (const Timing timing :
       {Timing::kBeforeTheFork, Timing::kFromAnotherThread, Timing::kOneByOneByAWorker}) {
    for (const uint32_t late_percent : {30u, 100u}) {
      for (const uint32_t unusable_percent : {0u, 30u, 100u}) {
        cases.push_back({1, 1, late_percent, unusable_percent, timing});
        cases.push_back({4, 2, late_percent, unusable_percent, timing});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Timings, ExpertFlowLate, testing::ValuesIn(LateCases()));

TEST(ExpertFlow, JobsAtHandAreWorkedOnBeforeThoseThatHaveArrived) {
  ExpertFlow flow(4, 2, 1);
  std::vector<FlowJob> jobs(4, {.rows = 1, .prepared = true});
  jobs[0].late = jobs[2].late = true;
  flow.Begin(jobs, kShape);
  flow.Arrive(2, true);
  flow.Arrive(0, true);
  std::vector<uint32_t> order;  // each job where its first piece is
  for (FlowPiece piece; flow.Next(0, &piece);) {
    if (std::find(order.begin(), order.end(), piece.job) == order.end()) order.push_back(piece.job);
    if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
  }
  EXPECT_THAT(order, testing::ElementsAre(1, 3, 2, 0));
}

TEST(ExpertFlow, FewLateJobsAreSharedAndManyAreNot) {
  const FlowShape shape = {.gate_up_band_count = 40, .down_band_count = 160};
  for (const uint32_t count : {1u, 9u}) {
    ExpertFlow flow(16, 4, 1);
    const std::vector<FlowJob> jobs(count, {.rows = 1, .prepared = true, .late = true});
    flow.Begin(jobs, shape);
    for (uint32_t j = 0; j < count; ++j) flow.Arrive(j, true);
    FlowPiece piece;
    ASSERT_TRUE(flow.Next(0, &piece));
    EXPECT_EQ(piece.band_end - piece.band_begin, count == 1 ? 10u : 40u);
    do {
      if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
    } while (flow.Next(0, &piece));
  }
}

TEST(ExpertFlow, LateJobsAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  WorkerTeam team(3);
  ExpertFlow flow(16, 3, 2);
  const LateLayer layer = RandomLateLayer(3, 16, 2, 60, 20);
  const uint64_t before = AllocationCount();
  for (int turn = 0; turn < 30; ++turn) {
    flow.Begin(layer.jobs, kShape);
    for (const uint32_t job : layer.order) flow.Arrive(job, layer.usable[job] != 0);
    team.ForRanges(3, 1, [&](uint32_t worker, uint32_t, uint32_t) {
      for (FlowPiece piece; flow.Next(worker % 2, &piece);) {
        if (flow.Finish(piece) == FlowEvent::kHiddenComplete) flow.PublishHidden(piece.job);
      }
    });
  }
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
