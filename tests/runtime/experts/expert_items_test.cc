// Experts of a plan as items: each entry once, at most eight rows to an item.
#include "runtime/experts/expert_items.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

TEST(ExpertItems, EveryEntryIsInOneItemOfItsExpert) {
  // Expert 0 has one row, 1 has 8, 2 has 20.
  WindowPlan plan;
  const uint32_t counts[] = {1, 8, 20};
  constexpr uint32_t kRanks = 3;
  for (uint32_t e = 0; e < 3; ++e) {
    plan.experts.push_back({.expert = ExpertId(e),
                            .entry_begin = static_cast<uint32_t>(plan.entries.size()),
                            .entry_count = counts[e]});
    for (uint32_t row = 0; row < counts[e]; ++row) plan.entries.push_back({row, e});
  }
  const std::vector<std::byte> blobs(3);
  std::vector<ExpertFfnItem> item_memory(ExpertItems::ItemsMax(20, kRanks));
  std::vector<ExpertFfnEntry> entry_memory(60);
  ExpertItems items(item_memory, entry_memory);
  for (int turn = 0; turn < 2; ++turn) {
    items.Clear();
    EXPECT_TRUE(items.items().empty());
    for (const uint32_t e : {2u, 0u, 1u}) items.Add(plan, e, kRanks, &blobs[e]);
    ASSERT_EQ(items.items().size(), 5u);
    ASSERT_EQ(items.entries().size(), 29u);
    EXPECT_EQ(items.rows_max(), 8u);
    std::vector<uint32_t> seen(60);
    for (const ExpertFfnItem& item : items.items()) {
      EXPECT_LE(item.entry_count, kExpertRowsMax);
      const auto e = static_cast<uint32_t>(item.blob - blobs.data());
      for (const ExpertFfnEntry& entry :
           items.entries().subspan(item.entry_begin, item.entry_count)) {
        EXPECT_EQ(entry.y_row, entry.x_row * kRanks + e);
        ++seen[entry.y_row];
      }
    }
    for (uint32_t e = 0; e < 3; ++e) {
      for (uint32_t row = 0; row < 20; ++row) {
        EXPECT_EQ(seen[row * kRanks + e], row < counts[e] ? 1u : 0u);
      }
    }
  }
  EXPECT_EQ(ExpertItems::ItemsOfExpertMax(20), 3u);
  EXPECT_EQ(ExpertItems::ItemsOfExpertMax(8), 1u);
}

}  // namespace
}  // namespace hearth
