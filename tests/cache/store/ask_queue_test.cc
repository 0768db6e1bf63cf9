// Askers of one expert are told together; demand keeps its order; hints are bounded.
#include "cache/store/ask_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

TEST(AskQueue, AskersOfAnExpertAreTakenTogetherInTheirOrder) {
  AskQueue queue(4, {4});
  std::vector<int> told;
  for (int i = 0; i < 3; ++i) {
    RamBlocks::Arrival arrival = [&told, i](const absl::StatusOr<BlockId>&) { told.push_back(i); };
    ASSERT_TRUE(queue.AddAsker(2, arrival));
  }
  EXPECT_TRUE(queue.asked(2));
  EXPECT_FALSE(queue.asked(1));
  std::vector<RamBlocks::Arrival> askers;
  queue.TakeAskers(2, askers);
  for (auto& asker : askers) asker(BlockId(0));
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(queue.asked(2));
}

TEST(AskQueue, TooManyAskersAreRefusedAndLaterThereIsRoomAgain) {
  AskQueue queue(1, {1});
  for (uint32_t i = 0; i < kAskersMax; ++i) {
    RamBlocks::Arrival arrival = [](const absl::StatusOr<BlockId>&) {};
    ASSERT_TRUE(queue.AddAsker(0, arrival));
  }
  RamBlocks::Arrival one_more = [](const absl::StatusOr<BlockId>&) {};
  EXPECT_FALSE(queue.AddAsker(0, one_more));
  EXPECT_TRUE(one_more != nullptr);
  std::vector<RamBlocks::Arrival> askers;
  queue.TakeAskers(0, askers);
  EXPECT_EQ(askers.size(), kAskersMax);
  EXPECT_TRUE(queue.AddAsker(0, one_more));
}

TEST(AskQueue, DemandIsServedInItsOrderOncePerExpertAndOnlyWhileAsked) {
  AskQueue queue(6, {3, 3});
  const auto ask = [&](uint32_t key) {
    RamBlocks::Arrival arrival = [](const absl::StatusOr<BlockId>&) {};
    ASSERT_TRUE(queue.AddAsker(key, arrival));
    queue.PushDemand(key / 3, key, 10 + key);
  };
  for (const uint32_t key : {2u, 0u, 2u, 1u, 5u}) ask(key);
  std::vector<RamBlocks::Arrival> askers;
  queue.TakeAskers(0, askers);  // got it some other way
  std::vector<uint32_t> order;
  AskQueue::Demand demand;
  while (queue.FrontDemand(0, &demand)) {
    EXPECT_EQ(demand.since_ns, 10 + demand.key);
    order.push_back(demand.key);
    queue.PopDemand(0);
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{2, 1}));
  EXPECT_FALSE(queue.demand_empty());
  ASSERT_TRUE(queue.FrontDemand(1, &demand));
  EXPECT_EQ(demand.key, 5u);
  queue.PopDemand(1);
  EXPECT_TRUE(queue.demand_empty());
}

TEST(AskQueue, TheLatestHintsStay) {
  AskQueue queue(2 * kHintsMax, {2 * kHintsMax});
  for (uint32_t key = 0; key < kHintsMax + 5; ++key) queue.PushHint(key);
  uint32_t key = 0, count = 0;
  while (queue.PopHint(&key)) EXPECT_EQ(key, 5 + count++);
  EXPECT_EQ(count, kHintsMax);
  queue.PushHint(1);
  queue.ClearHints();
  EXPECT_FALSE(queue.PopHint(&key));
}

}  // namespace
}  // namespace hearth
