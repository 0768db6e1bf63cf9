// Every distinct expert of a layer appears once, every route entry exactly once, whatever the
// routes.
#include "runtime/plan/window_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

TEST(WindowPlan, GroupsEntriesByExpertAndKeepsRowOrder) {
  const std::vector<uint32_t> routes = {5, 1, 1, 7, 5, 7};  // three rows, two ranks
  WindowPlan plan;
  GroupRoutes({.expert = routes, .rows = 3, .ranks = 2, .expert_count = 8}, plan);
  ASSERT_EQ(plan.experts.size(), 3u);
  EXPECT_EQ(plan.experts[0].expert, ExpertId(1));
  EXPECT_EQ(plan.experts[0].entry_count, 2u);
  EXPECT_EQ(plan.entries[0].row, 0u);
  EXPECT_EQ(plan.entries[0].rank, 1u);
  EXPECT_EQ(plan.entries[1].row, 1u);
  EXPECT_EQ(plan.entries[1].rank, 0u);
}

TEST(WindowPlan, EveryEntryIsServedExactlyOnce) {
  WindowPlan plan;  // reused, as in a run
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng(seed);
    const auto experts = static_cast<uint32_t>(1 + prng.Below(64));
    const auto rows = static_cast<uint32_t>(prng.Below(9));
    const auto ranks = static_cast<uint32_t>(1 + prng.Below(10));
    std::vector<uint32_t> routes(size_t{rows} * ranks);
    for (uint32_t& e : routes) e = static_cast<uint32_t>(prng.Below(experts));
    GroupRoutes({.expert = routes, .rows = rows, .ranks = ranks, .expert_count = experts}, plan);
    std::set<std::pair<uint32_t, uint32_t>> seen;
    std::set<uint32_t> distinct;
    for (const PlannedExpert& p : plan.experts) {
      EXPECT_TRUE(distinct.insert(p.expert.value).second) << "seed " << seed;
      for (uint32_t i = 0; i < p.entry_count; ++i) {
        const RouteEntry& e = plan.entries[p.entry_begin + i];
        EXPECT_EQ(routes[e.row * ranks + e.rank], p.expert.value) << "seed " << seed;
        EXPECT_TRUE(seen.insert({e.row, e.rank}).second) << "seed " << seed;
      }
    }
    EXPECT_EQ(seen.size(), routes.size()) << "seed " << seed;
    EXPECT_EQ(distinct, std::set<uint32_t>(routes.begin(), routes.end())) << "seed " << seed;
  }
}

TEST(WindowPlan, AllocatesNothingAfterReserve) {
  WindowPlan plan;
  plan.Reserve(9, 10, 512);
  const auto* const experts = plan.experts.data();
  const auto* const entries = plan.entries.data();
  const auto* const counts = plan.counts.data();
  std::vector<uint32_t> routes(90);
  for (uint32_t i = 0; i < routes.size(); ++i) routes[i] = (i * 37) % 512;
  GroupRoutes({.expert = routes, .rows = 9, .ranks = 10, .expert_count = 512}, plan);
  EXPECT_EQ(plan.experts.size(), 90u);
  EXPECT_EQ(plan.experts.data(), experts);
  EXPECT_EQ(plan.entries.data(), entries);
  EXPECT_EQ(plan.counts.data(), counts);
}

}  // namespace
}  // namespace hearth
