// The rules by which a card takes experts: what is in slots, then as many of the others as the
// window's rule says, in the order of the entries.
#include "gpu_kernels/ops/card_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hearth {
namespace {

using enum EntryClaim;
using ::testing::ElementsAre;

constexpr uint64_t kInSlot = 640;
constexpr uint64_t kAfar = 1280 | kFromAfar;

StreamRule RuleOf(std::vector<uint8_t> count, uint32_t experts_max) {
  StreamRule rule{.experts_max = experts_max};
  for (uint32_t m = 0; m <= StreamRule::kMissesMax; ++m) {
    rule.count[m] = count[std::min<size_t>(m, count.size() - 1)];
  }
  return rule;
}

TEST(CardClaims, SlotsAreTheCardsAndAllElseTheHosts) {
  ClaimFinder finder(4, 6);
  finder.BeginWindow({});
  const std::vector<uint64_t> table = {kInSlot, kAfar, 0, kInSlot};
  EXPECT_THAT(finder.Find(table, std::vector<uint32_t>{3, 1, 0, 2, 3, 3}),
              ElementsAre(kSlot, kHost, kSlot, kHost, kSlot, kSlot));
  EXPECT_FALSE(finder.all_claimed());
  EXPECT_THAT(finder.Find(table, std::vector<uint32_t>{3, 0}), ElementsAre(kSlot, kSlot));
  EXPECT_TRUE(finder.all_claimed());
}

TEST(CardClaims, StreamsThoseThatComeFirst) {
  ClaimFinder finder(6, 8);
  finder.BeginWindow(RuleOf({0, 0, 0, 1, 2}, 100));
  const std::vector<uint64_t> table = {kAfar, kAfar, 0, kAfar, kInSlot, kAfar};
  // Four distinct experts are missed; of those that can be read 5 and 0 come first.
  EXPECT_THAT(finder.Find(table, std::vector<uint32_t>{2, 5, 4, 0, 5, 3, 0, 2}),
              ElementsAre(kHost, kStreamed, kSlot, kStreamed, kStreamed, kHost, kStreamed, kHost));
  EXPECT_THAT(finder.Find(table, std::vector<uint32_t>{3, 1, 3, 0}),
              ElementsAre(kStreamed, kHost, kStreamed, kHost));
  EXPECT_THAT(finder.Find(table, std::vector<uint32_t>{3, 1, 4}), ElementsAre(kHost, kHost, kSlot));
}

TEST(CardClaims, AWindowStreamsNoMoreThanItsBound) {
  ClaimFinder finder(4, 4);
  finder.BeginWindow(RuleOf({4}, 3));
  const std::vector<uint64_t> table(4, kAfar);
  const std::vector<uint32_t> two = {0, 1};
  EXPECT_THAT(finder.Find(table, two), ElementsAre(kStreamed, kStreamed));
  EXPECT_THAT(finder.Find(table, two), ElementsAre(kStreamed, kHost));
  EXPECT_THAT(finder.Find(table, two), ElementsAre(kHost, kHost));
  finder.BeginWindow(RuleOf({4}, 3));
  EXPECT_THAT(finder.Find(table, two), ElementsAre(kStreamed, kStreamed));
}

}  // namespace
}  // namespace hearth
