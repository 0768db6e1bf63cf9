// The ledger's sums, its refusal of an account that does not add up, and its text, whose
// percentages add up to exactly a hundred.
#include "runtime/plan/ledger.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/base/prng.h"
#include "runtime/plan/ledger_text.h"

namespace hearth {
namespace {

WindowPlan PlanOf(std::span<const uint32_t> routes, uint32_t rows, uint32_t expert_count) {
  WindowPlan plan;
  GroupRoutes({.expert = routes,
               .rows = rows,
               .ranks = static_cast<uint32_t>(routes.size() / rows),
               .expert_count = expert_count},
              plan);
  return plan;
}

// Every expert of a plan to a random service.
LedgerCounts RandomCounts(const WindowPlan& plan, Prng& prng) {
  LedgerCounts counts;
  for (const PlannedExpert& e : plan.experts) {
    ServiceTotals& s = counts.of(static_cast<Service>(prng.Below(kServiceCount)));
    s += {.distinct = 1, .entries = e.entry_count, .bytes = 100, .ns = int64_t(prng.Below(1000))};
  }
  counts.wait_ns = static_cast<int64_t>(prng.Below(100));
  counts.passes = 1;
  return counts;
}

TEST(Ledger, TotalsAreTheSumsOfTheLayersAndOfThePlans) {
  Prng prng(1);
  Ledger ledger(3);
  uint64_t distinct = 0;
  uint64_t entries = 0;
  for (uint32_t pass = 0; pass < 50; ++pass) {
    for (uint32_t l = 0; l < 3; ++l) {
      std::vector<uint32_t> routes(12);
      for (uint32_t& e : routes) e = static_cast<uint32_t>(prng.Below(9));
      const WindowPlan plan = PlanOf(routes, 3, 9);
      ledger.Add(LayerId(l), plan, RandomCounts(plan, prng));
      distinct += plan.experts.size();
      entries += plan.entries.size();
    }
  }
  const LedgerCounts total = ledger.total();
  EXPECT_EQ(total.total().distinct, distinct);
  EXPECT_EQ(total.total().entries, entries);
  EXPECT_EQ(total.total().bytes, 100 * distinct);
  EXPECT_EQ(total.passes, 150u);
  LedgerCounts sum;
  for (const LedgerCounts& layer : ledger.layers()) {
    EXPECT_EQ(layer.passes, 50u);
    sum += layer;
  }
  EXPECT_EQ(sum.services, total.services);
  EXPECT_EQ(sum.wait_ns, total.wait_ns);
  double shares = 0;
  for (uint32_t s = 0; s < kServiceCount; ++s) shares += total.share(static_cast<Service>(s));
  EXPECT_NEAR(shares, 1, 1e-12);
}

TEST(Ledger, ALaterReadingLessAnEarlierOneIsWhatCameInBetween) {
  Prng prng(2);
  Ledger ledger(1);
  const std::vector<uint32_t> routes = {0, 1, 1, 2};
  const WindowPlan plan = PlanOf(routes, 2, 3);
  ledger.Add(LayerId(0), plan, RandomCounts(plan, prng));
  const LedgerCounts before = ledger.total();
  const LedgerCounts added = RandomCounts(plan, prng);
  ledger.Add(LayerId(0), plan, added);
  LedgerCounts difference = ledger.total();
  difference -= before;
  EXPECT_EQ(difference.services, added.services);
  EXPECT_EQ(difference.wait_ns, added.wait_ns);
  EXPECT_EQ(difference.passes, 1u);
}

TEST(LedgerDeathTest, AnExpertOrEntryThatNobodyOrTwoServedStops) {
  const std::vector<uint32_t> routes = {0, 1, 1, 2};
  const WindowPlan plan = PlanOf(routes, 2, 3);
  Ledger ledger(1);
  LedgerCounts counts;
  counts.of(Service::kCpu) = {.distinct = 2, .entries = 4};
  EXPECT_DEATH(ledger.Add(LayerId(0), plan, counts), "distinct");
  counts.of(Service::kVram) = {.distinct = 1, .entries = 1};
  EXPECT_DEATH(ledger.Add(LayerId(0), plan, counts), "entries");
  counts.of(Service::kCpu).entries = 3;
  ledger.Add(LayerId(0), plan, counts);
  counts.of(Service::kSsd) = {.distinct = 1, .entries = 0};
  counts.of(Service::kCpu).distinct = 1;
  EXPECT_DEATH(ledger.Add(LayerId(0), plan, counts), "distinct");
  EXPECT_DEATH(ledger.Add(LayerId(1), plan, counts), "layer");
}

TEST(Ledger, NothingServedHasNoShares) {
  const LedgerCounts counts;
  EXPECT_EQ(counts.share(Service::kVram), 0);
  EXPECT_EQ(PermilleShares(std::vector<uint64_t>{0, 0}), (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(LedgerTable(counts).size(), 6u);
}

TEST(LedgerText, PercentagesAddUpToAHundredAndLieWithinATenth) {
  Prng prng(3);
  for (int i = 0; i < 5000; ++i) {
    std::vector<uint64_t> counts(kServiceCount);
    const uint64_t bound = uint64_t{1} << (1 + prng.Below(63));
    for (uint64_t& c : counts) c = prng.Below(3) == 0 ? 0 : prng.Below(bound);
    const std::vector<uint32_t> shares = PermilleShares(counts);
    double all = 0;
    for (const uint64_t c : counts) all += static_cast<double>(c);
    if (all == 0) continue;
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), 0u), 1000u);
    for (uint32_t s = 0; s < kServiceCount; ++s) {
      ASSERT_NEAR(shares[s], 1000 * static_cast<double>(counts[s]) / all, 1);
    }
  }
  EXPECT_EQ(PermilleShares(std::vector<uint64_t>{1, 1, 1}), (std::vector<uint32_t>{334, 333, 333}));
}

TEST(LedgerText, EachServiceHasARowAndTheColumnsLineUp) {
  LedgerCounts counts;
  counts.of(Service::kVram) = {
      .distinct = 1'234'567, .entries = 2'345'678, .bytes = 0, .ns = 1'234'000'000};
  counts.of(Service::kCpu) = {
      .distinct = 65'432, .entries = 70'000, .bytes = 180'900'000'000, .ns = 98'765'432'100};
  const std::vector<std::string> lines = LedgerTable(counts);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "served by    experts            entries            bytes      time");
  EXPECT_EQ(lines[1], "vram       1,234,567   95.0%  2,345,678   97.1%      0 B   1.234 s");
  EXPECT_EQ(lines[3], "cpu           65,432    5.0%     70,000    2.9%  168 GiB  98.765 s");
  EXPECT_EQ(lines[5], "total      1,299,999  100.0%  2,415,678  100.0%  168 GiB  99.999 s");
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 80u);
    EXPECT_EQ(line.size(), lines[0].size());
    EXPECT_NE(line.back(), ' ');
  }
}

}  // namespace
}  // namespace hearth
