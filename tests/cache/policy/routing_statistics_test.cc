// Statistics of routes against values worked out by hand.
#include "cache/policy/routing_statistics.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(HotOrder, TrafficOfTheHottestShare) {
  const std::vector<uint64_t> counts = {1, 6, 2, 1};
  const HotOrder order(counts);
  EXPECT_EQ(order.Traffic(counts, 0), 0);
  EXPECT_EQ(order.Traffic(counts, 0.25), 0.6);
  EXPECT_THAT(order.Traffic(counts, 0.375), DoubleNear(0.7, 1e-12)) << "half of the second";
  EXPECT_EQ(order.Traffic(counts, 0.5), 0.8);
  EXPECT_EQ(order.Traffic(counts, 1), 1);
  EXPECT_EQ(order.Traffic(counts, 7), 1);
  EXPECT_THAT(order.Curve(counts, 4), ElementsAre(0, 0.6, 0.8, 0.9, 1));
}

TEST(HotOrder, ListOfOneTextOnAnother) {
  const std::vector<uint64_t> list = {9, 5, 1, 0};
  const std::vector<uint64_t> other = {0, 1, 0, 3};
  EXPECT_EQ(HotOrder(list).Traffic(other, 0.5), 0.25);
  const std::vector<uint64_t> none(4);
  EXPECT_EQ(HotOrder(list).Traffic(none, 0.5), 0);
}

RoutingIdentity TwoLayers() { return {.layer_count = 2, .expert_count = 3, .ranks = 1}; }

TEST(RoutingStatistics, OverlapIsTheSharedPartOfBothDistributions) {
  const std::vector<uint64_t> a = {4, 0, 0, 1, 1, 0};
  const std::vector<uint64_t> b = {0, 2, 0, 0, 1, 1};
  EXPECT_EQ(OverlapOf(TwoLayers(), a, a), 1);
  EXPECT_EQ(OverlapOf(TwoLayers(), a, b), (0 + 0.5) / 2);
}

TEST(RoutingStatistics, LayersAndTrunkArePartsOfTheCounts) {
  RoutingIdentity id = TwoLayers();
  id.has_mtp = true;
  const std::vector<uint64_t> counts = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(TrunkCounts(id, counts).size(), 6u);
  EXPECT_THAT(LayerCounts(id, counts, 1), ElementsAre(4, 5, 6));
  EXPECT_THAT(LayerCounts(id, counts, 2), ElementsAre(7, 8, 9));
}

TEST(RoutingStatistics, DistinctExpertsOfWindowsWithinTexts) {
  // Two texts of three and two tokens; layers take experts as columns say.
  const RouteTrace trace{.identity = TwoLayers(),
                         .text_begins = {0, 3},
                         .routes = {0, 2,  //
                                    1, 2,  //
                                    1, 1,  // the odd token of windows of two
                                    2, 0,  //
                                    2, 1}};
  EXPECT_THAT(DistinctByLayer(trace, 1), ElementsAre(1, 1));
  EXPECT_THAT(DistinctByLayer(trace, 2), ElementsAre(1.5, 1.5));
  EXPECT_THAT(DistinctByLayer(trace, 3), ElementsAre(2, 2));
  EXPECT_TRUE(DistinctByLayer(trace, 4).empty());
}

TEST(RoutingStatistics, EvenChoicesFillUpSlowly) {
  EXPECT_THAT(DistinctIfEven(512, 10, 1), DoubleNear(10, 1e-9));
  EXPECT_THAT(DistinctIfEven(4, 2, 2), DoubleNear(3, 1e-9));
}

}  // namespace
}  // namespace hearth
