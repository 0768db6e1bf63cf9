// The choice of services against brute force over random costs and limits, and costs that a single
// outlier does not move.
#include "runtime/plan/service_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

// Experts 0, 2, 4, ... with the rows given.
WindowPlan PlanOf(std::span<const uint32_t> rows) {
  WindowPlan plan;
  uint32_t first = 0;
  for (uint32_t i = 0; i < rows.size(); ++i) {
    plan.experts.push_back(
        {.expert = ExpertId(2 * i), .entry_begin = first, .entry_count = rows[i]});
    for (uint32_t r = 0; r < rows[i]; ++r) plan.entries.push_back({.row = r, .rank = 0});
    first += rows[i];
  }
  return plan;
}

struct Case {
  std::vector<uint32_t> rows;
  std::vector<Residency> residency;
  std::vector<float> heat;
  std::vector<uint8_t> wanted;
  ServiceLimits limits;
  ServiceCosts costs;
};

Case RandomCase(uint64_t seed) {
  Prng prng(seed);
  Case c;
  const auto count = static_cast<uint32_t>(prng.Below(13));
  for (uint32_t i = 0; i < count; ++i) {
    c.rows.push_back(static_cast<uint32_t>(1 + prng.Below(4)));
    const uint64_t where = prng.Below(6);
    c.residency.push_back(where == 0   ? Residency::kVram
                          : where == 1 ? Residency::kNvme
                                       : Residency::kRam);
    c.heat.push_back(static_cast<float>(prng.Below(5)));  // with equals
    c.wanted.push_back(prng.Below(4) == 0 ? 1 : 0);
  }
  const uint64_t kind = prng.Below(3);
  c.limits.pcie_share = kind == 0 ? -1 : kind == 1 ? prng.Uniform() : double(prng.Below(2));
  c.limits.blob_bytes = 1 + prng.Below(1000);
  c.limits.pcie_bytes_left = prng.Below(12000);
  c.limits.uploads_max = static_cast<uint32_t>(prng.Below(10));
  c.limits.probes_left = static_cast<uint32_t>(prng.Below(2));
  const auto cost = [&](bool may_be_unknown) {
    if (may_be_unknown && prng.Below(8) == 0) return 0.0;
    return std::floor(std::exp(prng.Uniform() * 6) * 100);
  };
  c.costs = {.cpu_expert_ns = cost(true),
             .cpu_row_ns = cost(false),
             .pcie_expert_ns = cost(true),
             .pcie_layer_ns = cost(false),
             .dram_expert_ns = cost(false)};
  return c;
}

// T of an assignment as the header defines it.
double LayerTime(const Case& c, std::span<const uint8_t> uploaded) {
  double cpu_ns = 0;
  double pcie_ns = 0;
  double dram_ns = 0;
  bool any = false;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    if (c.residency[i] != Residency::kRam) continue;
    dram_ns += c.costs.dram_expert_ns;
    if (uploaded[i] != 0) {
      any = true;
      pcie_ns += c.costs.pcie_expert_ns;
    } else {
      cpu_ns += c.costs.cpu_expert_ns + (c.rows[i] - 1) * c.costs.cpu_row_ns;
    }
  }
  if (any) pcie_ns += c.costs.pcie_layer_ns;
  return std::max({cpu_ns, pcie_ns, dram_ns});
}

// What must be uploaded: the experts one by one in the order of the rule, as many as are best.
std::vector<uint8_t> BruteForce(const Case& c) {
  std::vector<size_t> order;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    if (c.residency[i] == Residency::kRam) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_pair(c.wanted[b], c.heat[b]) < std::make_pair(c.wanted[a], c.heat[a]);
  });
  const auto allowed = [&](size_t n) {
    return n <= c.limits.uploads_max && n * c.limits.blob_bytes <= c.limits.pcie_bytes_left &&
           (c.limits.pcie_share < 0 ||
            static_cast<double>(n) <= std::floor(c.limits.pcie_share * order.size() + 1e-9));
  };
  const bool known = c.costs.cpu_expert_ns > 0 && c.costs.pcie_expert_ns > 0;
  std::vector<uint8_t> best(c.rows.size(), 0);
  std::vector<uint8_t> uploaded = best;
  double best_ns = LayerTime(c, uploaded);
  for (size_t n = 1; n <= order.size() && allowed(n); ++n) {
    uploaded[order[n - 1]] = 1;
    if (c.limits.pcie_share >= 0) {
      best = uploaded;
    } else if (!known) {
      if (c.costs.pcie_expert_ns == 0 && n <= c.limits.probes_left && n <= 1) best = uploaded;
    } else if (LayerTime(c, uploaded) < best_ns) {
      best_ns = LayerTime(c, uploaded);
      best = uploaded;
    }
  }
  return best;
}

uint32_t Choose(const Case& c, WindowPlan& plan) {
  return ChooseServices(c.residency, {.heat = c.heat, .wanted = c.wanted}, c.limits, c.costs, plan);
}

TEST(ServiceChoice, IsWhatBruteForceFindsWithinEveryLimit) {
  uint32_t weighed_uploads = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const Case c = RandomCase(seed);
    WindowPlan plan = PlanOf(c.rows);
    const uint32_t uploads = Choose(c, plan);
    const std::vector<uint8_t> expected = BruteForce(c);
    uint32_t counted = 0;
    uint32_t misses = 0;
    for (size_t i = 0; i < c.rows.size(); ++i) {
      const Service service = plan.experts[i].service;
      if (c.residency[i] == Residency::kVram) {
        ASSERT_EQ(service, Service::kVram) << "seed " << seed;
      } else if (c.residency[i] == Residency::kNvme) {
        ASSERT_EQ(service, Service::kSsd) << "seed " << seed;
      } else {
        ++misses;
        ASSERT_EQ(service, expected[i] != 0 ? Service::kPcie : Service::kCpu) << "seed " << seed;
      }
      counted += service == Service::kPcie ? 1 : 0;
    }
    ASSERT_EQ(counted, uploads) << "seed " << seed;
    ASSERT_LE(uploads * c.limits.blob_bytes, c.limits.pcie_bytes_left) << "seed " << seed;
    ASSERT_LE(uploads, c.limits.uploads_max) << "seed " << seed;
    if (c.limits.pcie_share >= 0) {
      ASSERT_LE(uploads, c.limits.pcie_share * misses + 1e-6) << "seed " << seed;
    } else {
      weighed_uploads += uploads;
    }
  }
  EXPECT_GT(weighed_uploads, 1000u);
}

TEST(ServiceChoice, WantedComeFirstThenHotterThenLowerIds) {
  const std::vector<uint32_t> rows(5, 1);
  Case c{.rows = rows,
         .residency = std::vector<Residency>(5, Residency::kRam),
         .heat = {3, 9, 3, 1, 9},
         .wanted = {0, 0, 0, 1, 0},
         .limits = {.pcie_share = 1, .pcie_bytes_left = 1000, .blob_bytes = 10, .uploads_max = 0}};
  const std::vector<uint32_t> expected = {3, 1, 4, 0, 2};
  for (uint32_t n = 1; n <= 5; ++n) {
    c.limits.uploads_max = n;
    WindowPlan plan = PlanOf(rows);
    ASSERT_EQ(Choose(c, plan), n);
    EXPECT_EQ(plan.experts[expected[n - 1]].service, Service::kPcie) << n;
  }
}

TEST(ServiceChoice, ShareZeroUploadsNothingAndShareOneAllThatLimitsAllow) {
  const std::vector<uint32_t> rows(8, 1);
  Case c{.rows = rows,
         .residency = std::vector<Residency>(8, Residency::kRam),
         .heat = std::vector<float>(8, 1),
         .wanted = std::vector<uint8_t>(8, 1),
         .limits = {.pcie_share = 0, .pcie_bytes_left = 1000, .blob_bytes = 10, .uploads_max = 99}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 0u);
  c.limits.pcie_share = 1;
  EXPECT_EQ(Choose(c, plan), 8u);  // also while no cost is known
  c.limits.pcie_bytes_left = 59;
  EXPECT_EQ(Choose(c, plan), 5u);
  c.limits.pcie_share = 0.29;  // of 100 experts this is 29, though 0.29 * 100 is below it
  c = {
      .rows = std::vector<uint32_t>(100, 1),
      .residency = std::vector<Residency>(100, Residency::kRam),
      .limits = {.pcie_share = 0.29, .pcie_bytes_left = 9999, .blob_bytes = 10, .uploads_max = 99}};
  plan = PlanOf(c.rows);
  EXPECT_EQ(Choose(c, plan), 29u);
}

TEST(ServiceChoice, MemoryIsTheFloorBeyondWhichNothingIsUploaded) {
  const std::vector<uint32_t> rows(10, 1);
  Case c{.rows = rows,
         .residency = std::vector<Residency>(10, Residency::kRam),
         .limits = {.pcie_bytes_left = 1000, .blob_bytes = 10, .uploads_max = 99},
         .costs = {.cpu_expert_ns = 100, .pcie_expert_ns = 100, .dram_expert_ns = 80}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 2u);  // the CPU is at 800 ns then, and memory has no more to give
  c.costs.dram_expert_ns = 10;
  EXPECT_EQ(Choose(c, plan), 5u);
  c.costs.pcie_layer_ns = 5000;
  EXPECT_EQ(Choose(c, plan), 0u);
}

TEST(ServiceChoice, AnUnknownCostAllowsOneProbeOfAWindowAndNoMore) {
  const std::vector<uint32_t> rows(6, 1);
  Case c{.rows = rows,
         .residency = std::vector<Residency>(6, Residency::kRam),
         .limits = {.pcie_bytes_left = 1000, .blob_bytes = 10, .uploads_max = 99, .probes_left = 1},
         .costs = {.cpu_expert_ns = 1000}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 1u);
  c.limits.probes_left -= 1;
  EXPECT_EQ(Choose(c, plan), 0u);
  c.costs = {.pcie_expert_ns = 1};  // known: the CPU learns its own cost by computing
  c.limits.probes_left = 1;
  EXPECT_EQ(Choose(c, plan), 0u);
  UpdateCosts({.cpu_experts = 6, .cpu_rows = 6, .cpu_ns = 6000}, c.costs);
  EXPECT_EQ(Choose(c, plan), 6u);
}

TEST(ServiceChoice, WhereUploadsComeFirstTheCpuIsLeftWhatItsCostIsLearnedFrom) {
  const std::vector<uint32_t> rows(64, 5);
  Case c{
      .rows = rows,
      .residency = std::vector<Residency>(64, Residency::kRam),
      .limits = {
          .pcie_bytes_left = 100000, .blob_bytes = 10, .uploads_max = 99, .uploads_first = true}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 59u);
  c.costs.pcie_expert_ns = 1000;  // known or not
  EXPECT_EQ(Choose(c, plan), 59u);
  c.limits.uploads_max = 7;
  EXPECT_EQ(Choose(c, plan), 7u);
  c.limits.uploads_max = 99;
  UpdateCosts({.cpu_experts = 5, .cpu_rows = 25, .cpu_ns = 10000}, c.costs);
  EXPECT_EQ(Choose(c, plan), 43u);  // 43 us beside 21 experts of 2 us
}

TEST(ServiceChoice, ASlotCacheWithoutSlotsUploadsNothing) {
  const std::vector<uint32_t> rows(6, 2);
  Case c{.rows = rows,
         .residency = std::vector<Residency>(6, Residency::kRam),
         .limits = {.pcie_share = 1}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 0u);
}

TEST(ServiceChoice, HeatThatIsNotANumberIsTheColdest) {
  const std::vector<uint32_t> rows(3, 1);
  const Case c{
      .rows = rows,
      .residency = std::vector<Residency>(3, Residency::kRam),
      .heat = {NAN, -5, NAN},
      .wanted = {},
      .limits = {.pcie_share = 1, .pcie_bytes_left = 1000, .blob_bytes = 10, .uploads_max = 1}};
  WindowPlan plan = PlanOf(rows);
  EXPECT_EQ(Choose(c, plan), 1u);
  EXPECT_EQ(plan.experts[1].service, Service::kPcie);
}

LayerMeasurement Measured(const ServiceCosts& truth, uint32_t experts, uint32_t rows,
                          uint32_t uploads, double factor) {
  return {.cpu_experts = experts,
          .cpu_rows = rows,
          .cpu_ns = static_cast<int64_t>(
              factor * (experts * truth.cpu_expert_ns + (rows - experts) * truth.cpu_row_ns)),
          .pcie_experts = uploads,
          .pcie_ns = static_cast<int64_t>(factor *
                                          (truth.pcie_layer_ns + uploads * truth.pcie_expert_ns))};
}

TEST(ServiceCosts, FollowWhatIsMeasuredAndTellRowsFromExperts) {
  const ServiceCosts truth = {.cpu_expert_ns = 90'000,
                              .cpu_row_ns = 30'000,
                              .pcie_expert_ns = 55'000,
                              .pcie_layer_ns = 20'000};
  ServiceCosts costs;
  Prng prng(7);
  for (int i = 0; i < 3000; ++i) {
    const auto experts = static_cast<uint32_t>(4 + prng.Below(30));
    const auto rows = static_cast<uint32_t>(experts + prng.Below(3 * experts));
    const auto uploads = static_cast<uint32_t>(1 + prng.Below(8));
    UpdateCosts(Measured(truth, experts, rows, uploads, 0.9 + 0.2 * prng.Uniform()), costs);
  }
  EXPECT_NEAR(costs.cpu_expert_ns, truth.cpu_expert_ns, 0.1 * truth.cpu_expert_ns);
  EXPECT_NEAR(costs.cpu_row_ns, truth.cpu_row_ns, 0.15 * truth.cpu_row_ns);
  EXPECT_NEAR(costs.pcie_expert_ns, truth.pcie_expert_ns, 0.15 * truth.pcie_expert_ns);
  EXPECT_NEAR(costs.pcie_layer_ns, truth.pcie_layer_ns, 0.5 * truth.pcie_layer_ns);
}

TEST(ServiceCosts, ASingleOutlierMovesThemLittle) {
  const ServiceCosts truth = {.cpu_expert_ns = 90'000, .cpu_row_ns = 0, .pcie_expert_ns = 55'000};
  ServiceCosts costs = truth;
  UpdateCosts(Measured(truth, 20, 20, 4, 100), costs);
  EXPECT_LE(costs.cpu_expert_ns, truth.cpu_expert_ns * 1.07);
  EXPECT_LE(costs.pcie_expert_ns, truth.pcie_expert_ns * 1.07);
  costs = truth;
  UpdateCosts(Measured(truth, 20, 20, 4, 0.01), costs);
  EXPECT_GE(costs.cpu_expert_ns, truth.cpu_expert_ns * 0.93);
  EXPECT_GE(costs.pcie_expert_ns, truth.pcie_expert_ns * 0.93);
}

TEST(ServiceCosts, RecoverFromAFirstMeasurementThatWasAnOutlier) {
  const ServiceCosts truth = {.cpu_expert_ns = 90'000, .pcie_expert_ns = 55'000};
  ServiceCosts costs;
  UpdateCosts(Measured(truth, 20, 20, 4, 100), costs);
  for (int i = 0; i < 48 * 4; ++i) UpdateCosts(Measured(truth, 20, 20, 4, 1), costs);
  EXPECT_LT(costs.cpu_expert_ns, 1.3 * truth.cpu_expert_ns);
  EXPECT_LT(costs.pcie_expert_ns, 1.3 * truth.pcie_expert_ns);
}

TEST(ServiceCosts, AMeasurementOfNothingChangesNothing) {
  ServiceCosts costs = {.cpu_expert_ns = 5, .cpu_row_ns = 4, .pcie_expert_ns = 3};
  UpdateCosts({.cpu_experts = 0, .cpu_ns = 100, .pcie_experts = 3, .pcie_ns = 0}, costs);
  UpdateCosts({.cpu_experts = 3, .cpu_rows = 3, .cpu_ns = -1}, costs);
  EXPECT_EQ(costs.cpu_expert_ns, 5);
  EXPECT_EQ(costs.cpu_row_ns, 4);
  EXPECT_EQ(costs.pcie_expert_ns, 3);
}

// The least n of 0 to `misses` with the least time of the slower side.
uint8_t BestSplit(uint32_t misses, const SplitCosts& costs) {
  uint32_t best = 0;
  double best_ns = 0;
  for (uint32_t n = 0; n <= misses; ++n) {
    const uint32_t cpu = misses - n;
    const double ns = std::max(cpu == 0 ? 0 : costs.cpu_layer_ns + cpu * costs.cpu_expert_ns,
                               n == 0 ? 0 : costs.link_layer_ns + n * costs.link_expert_ns);
    if (n != 0 && !(ns < best_ns)) continue;
    best = n;
    best_ns = ns;
  }
  return static_cast<uint8_t>(best);
}

TEST(SplitMisses, TakesTheLeastTimeOfTheSlowerSide) {
  const SplitCosts costs[] = {{37, 8, 53, 5}, {37, 0, 53, 0}, {100, 20, 10, 1}, {5, 1, 500, 20}};
  for (const SplitCosts& c : costs) {
    uint8_t streamed[40];
    SplitMisses(-1, c, streamed);
    for (uint32_t m = 0; m < 40; ++m) EXPECT_EQ(streamed[m], BestSplit(m, c)) << m;
  }
}

TEST(SplitMisses, StreamsNothingWhileACostIsUnknownAndTheUsersShareRegardless) {
  uint8_t streamed[9];
  SplitMisses(-1, {.link_expert_ns = 5}, streamed);
  EXPECT_THAT(streamed, testing::Each(0));
  SplitMisses(-1, {.cpu_expert_ns = 5}, streamed);
  EXPECT_THAT(streamed, testing::Each(0));
  SplitMisses(0.5, {}, streamed);
  EXPECT_THAT(streamed, testing::ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4));
  SplitMisses(1, {}, streamed);
  EXPECT_THAT(streamed, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(SplitMisses, CostsFollowWhatWasMeasured) {
  SplitCosts costs;
  UpdateSplit({.cpu_experts = 2, .cpu_ns = 100}, costs);
  EXPECT_EQ(costs.cpu_expert_ns, 50);
  EXPECT_EQ(costs.link_expert_ns, 0);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t n = 1 + i % 4;
    UpdateSplit({.cpu_experts = n,
                 .cpu_ns = 10 + 30 * int64_t{n},
                 .link_experts = n,
                 .link_ns = 5 + 60 * int64_t{n}},
                costs);
  }
  EXPECT_NEAR(costs.cpu_expert_ns, 30, 1);
  EXPECT_NEAR(costs.cpu_layer_ns, 10, 2);
  EXPECT_NEAR(costs.link_expert_ns, 60, 1);
  EXPECT_NEAR(costs.link_layer_ns, 5, 2);
}

}  // namespace
}  // namespace hearth
