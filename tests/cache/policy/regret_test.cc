// The ring of recent windows and the gauge of regret over it.
#include "cache/policy/regret.h"

#include <deque>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/policy/policy_table.h"
#include "cache/policy/replay.h"
#include "cache/policy/trace_windows.h"
#include "runtime/base/prng.h"
#include "tests/cache/policy/random_trace.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

void AddLayer(RegretRing& ring, uint32_t layer, const std::vector<uint32_t>& experts,
              const std::vector<uint8_t>& hits) {
  std::vector<ExpertId> ids;
  for (const uint32_t e : experts) ids.emplace_back(e);
  ring.Add(LayerId(layer), ids, hits);
}

std::vector<uint32_t> ExpertsOf(const RegretSample& sample) {
  std::vector<uint32_t> experts;
  for (const RegretSample::Use use : sample.uses) experts.push_back(use.expert);
  return experts;
}

TEST(RegretRingTest, KeepsTheLastWindows) {
  RegretRing ring({.layer_count = 2, .expert_count = 8, .window_count_max = 2});
  for (uint32_t w = 0; w < 4; ++w) {
    AddLayer(ring, 0, {w, w + 1}, {1, 0});
    if (w != 2) AddLayer(ring, 1, {7}, {1});
    ring.EndWindow();
  }
  const RegretSample sample = ring.Sample();
  EXPECT_THAT(sample.counts, ElementsAre(2, 0, 2, 1));
  EXPECT_THAT(ExpertsOf(sample), ElementsAre(2, 3, 3, 4, 7));
  EXPECT_DOUBLE_EQ(ring.hit_rate(), 3.0 / 5);
}

TEST(RegretRingTest, TheWindowAtHandIsNotInTheSample) {
  RegretRing ring({.layer_count = 1, .expert_count = 8, .window_count_max = 2});
  AddLayer(ring, 0, {1}, {1});
  EXPECT_EQ(ring.Sample().window_count(), 0u);
  EXPECT_EQ(ring.hit_rate(), 0);
  ring.EndWindow();
  EXPECT_EQ(ring.Sample().window_count(), 1u);
  ring.Clear();
  EXPECT_EQ(ring.window_count(), 0u);
  EXPECT_EQ(ring.hit_rate(), 0);
}

TEST(RegretRingTest, AWindowThatDoesNotFitIsLeftOut) {
  RegretRing ring(
      {.layer_count = 1, .expert_count = 64, .window_count_max = 2, .layer_uses_max = 2});
  AddLayer(ring, 0, {1}, {1});
  ring.EndWindow();
  AddLayer(ring, 0, {0, 1, 2, 3, 4}, {0, 0, 0, 0, 0});
  ring.EndWindow();
  EXPECT_EQ(ring.window_count(), 0u);  // the one before made room in vain
  AddLayer(ring, 0, {5, 6}, {1, 0});
  ring.EndWindow();
  EXPECT_THAT(ExpertsOf(ring.Sample()), ElementsAre(5, 6));
  EXPECT_DOUBLE_EQ(ring.hit_rate(), 0.5);
}

// Against a plain list of windows, through windows of all lengths.
TEST(RegretRingTest, IsAListOfWindows) {
  constexpr uint32_t kLayers = 3;
  RegretRing ring(
      {.layer_count = kLayers, .expert_count = 32, .window_count_max = 7, .layer_uses_max = 3});
  struct Window {
    std::vector<uint32_t> experts;
    uint64_t hits = 0;
  };
  std::deque<Window> model;
  Prng prng(2);
  for (int i = 0; i < 500; ++i) {
    Window window;
    for (uint32_t l = 0; l < kLayers; ++l) {
      std::vector<uint32_t> experts;
      std::vector<uint8_t> hits;
      for (uint32_t e = static_cast<uint32_t>(prng.Below(3)); e < 32 && experts.size() < 6;
           e += 1 + static_cast<uint32_t>(prng.Below(20))) {
        experts.push_back(e);
        hits.push_back(static_cast<uint8_t>(prng.Below(2)));
        window.hits += hits.back();
      }
      AddLayer(ring, l, experts, hits);
      window.experts.insert(window.experts.end(), experts.begin(), experts.end());
    }
    ring.EndWindow();
    model.push_back(window);
    const auto uses = [&] {
      uint64_t count = 0;
      for (const Window& w : model) count += w.experts.size();
      return count;
    };
    while (model.size() > 7 || uses() > 63) model.pop_front();
    std::vector<uint32_t> all;
    uint64_t hits = 0;
    for (const Window& w : model) {
      all.insert(all.end(), w.experts.begin(), w.experts.end());
      hits += w.hits;
    }
    ASSERT_EQ(ring.window_count(), model.size());
    ASSERT_EQ(ExpertsOf(ring.Sample()), all);
    ASSERT_DOUBLE_EQ(ring.hit_rate(),
                     all.empty() ? 0 : static_cast<double>(hits) / static_cast<double>(all.size()));
  }
}

TEST(RegretRingTest, AllocatesNothingWhileItRuns) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has an operator new of its own";
  RegretRing ring({.layer_count = 2, .expert_count = 8, .window_count_max = 5});
  const std::vector<ExpertId> experts = {ExpertId(1), ExpertId(4)};
  const std::vector<uint8_t> hits = {1, 0};
  const uint64_t before = AllocationCount();
  for (int w = 0; w < 50; ++w) {
    ring.Add(LayerId(0), experts, hits);
    ring.Add(LayerId(1), experts, hits);
    ring.EndWindow();
  }
  EXPECT_EQ(AllocationCount(), before);
}

// A policy's hits as the engine sees them, judged over all windows: what replay says.
TEST(MeasureRegretTest, AgreesWithReplay) {
  const TraceWindows windows = CutWindows(MakeRandomTrace({.tokens = 200}, 9), 2);
  PoolShape pool{
      .layer_count = 2, .expert_count = 16, .layers = {LayerId(0), LayerId(1)}, .slot_count = 12};
  const PolicyEntry& entry = *FindPolicy("two-scale");
  const auto policy = MakePolicy(entry, pool);
  RegretRing ring({.layer_count = 2, .expert_count = 16});
  std::vector<Swap> swaps(4);
  for (uint64_t w = 0; w < windows.window_count(); ++w) {
    for (uint32_t l = 0; l < 2; ++l) {
      std::vector<ExpertId> experts;
      std::vector<uint8_t> hits;
      for (const ExpertSighting& s : windows.of(w, l)) {
        experts.push_back(s.expert);
        hits.push_back(policy->resident({LayerId(l), s.expert}) ? 1 : 0);
      }
      ring.Add(LayerId(l), experts, hits);
      policy->Observe(windows.traffic(w, l));
      const size_t count = policy->Propose(swaps);
      for (size_t i = 0; i < count; ++i) policy->Begin(swaps[i]);
      for (size_t i = 0; i < count; ++i) policy->Land(swaps[i]);
    }
    ring.EndWindow();
    policy->EndWindow(windows.token_counts[w]);
  }
  const Regret regret = MeasureRegret(ring.Sample(), {&pool, 1});
  const auto make = [&](const PoolShape& shape) { return MakePolicy(entry, shape); };
  const ReplayCounts replayed =
      Replay(windows, make, {.slot_count = 12, .warm_up_share = 0, .swaps_per_layer_max = 4})
          .total();
  EXPECT_EQ(regret.window_count, windows.window_count());
  EXPECT_EQ(regret.distinct, replayed.distinct);
  EXPECT_EQ(regret.hits, replayed.distinct_hits);
  EXPECT_GE(regret.belady_hits, regret.hits);
  EXPECT_DOUBLE_EQ(ring.hit_rate(), regret.hit_rate());
  EXPECT_LE(regret.belady_hit_rate(), 1);
}

TEST(MeasureRegretTest, EachPoolIsJudgedWithItsOwnSlots) {
  RegretRing ring({.layer_count = 2, .expert_count = 8});
  for (int w = 0; w < 3; ++w) {
    AddLayer(ring, 0, {0, 1}, {0, 0});
    AddLayer(ring, 1, {0, 1}, {0, 0});
    ring.EndWindow();
  }
  const std::vector<PoolShape> pools = {
      {.layer_count = 2, .expert_count = 8, .layers = {LayerId(1)}, .slot_count = 2},
      {.layer_count = 2, .expert_count = 8, .layers = {LayerId(0)}, .slot_count = 1}};
  const Regret regret = MeasureRegret(ring.Sample(), pools);
  EXPECT_EQ(regret.distinct, 12u);
  EXPECT_EQ(regret.belady_hits, 6u + 3u);
}

}  // namespace
}  // namespace hearth
