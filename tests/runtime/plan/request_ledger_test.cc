// Each request's own account: against a plain count, and its entries add up to the pass.
#include "runtime/plan/request_ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "runtime/base/prng.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

TEST(RequestLedger, AnExpertOfTwoRequestsCountsForBothAndAnEntryForOne) {
  const std::vector<uint32_t> routes = {0, 1, 1, 2, 0, 1};  // three rows of two ranks
  WindowPlan plan;
  GroupRoutes({.expert = routes, .rows = 3, .ranks = 2, .expert_count = 3}, plan);
  plan.experts[0].service = Service::kVram;
  plan.experts[1].service = Service::kPcie;
  plan.experts[2].service = Service::kSsd;
  const std::vector<RequestRows> requests = {{0, 2}, {2, 3}};
  std::vector<RequestCounts> counts(2);
  AddRequestCounts(plan, {}, requests, counts);
  EXPECT_EQ(counts[0].of(Service::kVram), (RequestServed{.distinct = 1, .entries = 1}));
  EXPECT_EQ(counts[0].of(Service::kPcie), (RequestServed{.distinct = 1, .entries = 2}));
  EXPECT_EQ(counts[0].of(Service::kSsd), (RequestServed{.distinct = 1, .entries = 1}));
  EXPECT_EQ(counts[1].of(Service::kVram), (RequestServed{.distinct = 1, .entries = 1}));
  EXPECT_EQ(counts[1].of(Service::kPcie), (RequestServed{.distinct = 1, .entries = 1}));
  EXPECT_EQ(counts[1].total(), (RequestServed{.distinct = 2, .entries = 2}));
}

TEST(RequestLedger, IsThePlainCountForRandomRoutesAndRequests) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Prng prng(seed);
    const auto rows = static_cast<uint32_t>(1 + prng.Below(16));
    const auto ranks = static_cast<uint32_t>(1 + prng.Below(5));
    std::vector<uint32_t> routes(size_t{rows} * ranks);
    for (uint32_t& e : routes) e = static_cast<uint32_t>(prng.Below(12));
    WindowPlan plan;
    GroupRoutes({.expert = routes, .rows = rows, .ranks = ranks, .expert_count = 12}, plan);
    std::vector<Service> services;
    std::map<uint32_t, Service> service_of;
    for (const PlannedExpert& e : plan.experts) {
      services.push_back(static_cast<Service>(prng.Below(kServiceCount)));
      service_of[e.expert.value] = services.back();
    }
    const bool gaps = prng.Below(2) == 0;
    std::vector<RequestRows> requests;
    for (uint32_t row = 0; row < rows;) {
      if (gaps && prng.Below(3) == 0) ++row;
      const auto end = static_cast<uint32_t>(std::min<uint64_t>(rows, row + prng.Below(5)));
      if (row > end) break;
      requests.push_back({row, end});
      row = end;
    }
    std::vector<RequestCounts> counts(requests.size());
    AddRequestCounts(plan, services, requests, counts);
    uint64_t entries = 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      std::vector<RequestCounts> expected(1);
      std::set<uint32_t> seen;
      for (size_t i = size_t{requests[r].begin} * ranks; i < size_t{requests[r].end} * ranks; ++i) {
        RequestServed& served = expected[0].of(service_of[routes[i]]);
        served.distinct += seen.insert(routes[i]).second ? 1 : 0;
        ++served.entries;
      }
      ASSERT_EQ(counts[r], expected[0]) << "seed " << seed << " request " << r;
      entries += counts[r].total().entries;
    }
    if (!gaps && !requests.empty() && requests.back().end == rows) {
      ASSERT_EQ(entries, routes.size()) << "seed " << seed;
    }
  }
}

TEST(RequestLedger, AddsUpOverPassesWithoutAllocating) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  const std::vector<uint32_t> routes = {0, 1, 1, 2};
  WindowPlan plan;
  GroupRoutes({.expert = routes, .rows = 2, .ranks = 2, .expert_count = 3}, plan);
  const std::vector<RequestRows> requests = {{0, 1}, {1, 2}};
  std::vector<RequestCounts> counts(2);
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) AddRequestCounts(plan, {}, requests, counts);
  EXPECT_EQ(AllocationCount(), before);
  EXPECT_EQ(counts[0].total().entries, 20u);
  EXPECT_EQ(counts[1].total().distinct, 20u);
}

TEST(RequestLedgerDeathTest, RequestsThatOverlapStop) {
  const std::vector<uint32_t> routes = {0, 1};
  WindowPlan plan;
  GroupRoutes({.expert = routes, .rows = 2, .ranks = 1, .expert_count = 2}, plan);
  const std::vector<RequestRows> requests = {{0, 2}, {1, 2}};
  std::vector<RequestCounts> counts(2);
  EXPECT_DEATH(AddRequestCounts(plan, {}, requests, counts), "requests");
}

}  // namespace
}  // namespace hearth
