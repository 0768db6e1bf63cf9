// Blocks change hands by the rules: the longest unused first, never while leased, held or written.
#include "cache/store/block_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

class BlockTableTest : public testing::Test {
 protected:
  BlockId Put(ExpertKey key) {
    const BlockId block = table_.Take(table_.ClassOf(key.layer), nullptr);
    if (!block.valid()) return block;
    table_.Fill(block, key);
    table_.Validate(block);
    return block;
  }
  const StoreFixture store_{{.trunk_layers = 2, .expert_count = 8, .has_mtp = false}};
  const uint64_t block_bytes_ = store_.file().layout(LayerId(0)).stride_bytes();
  BlockTable table_{*LayOutBlocks(store_.file(), 4 * block_bytes_), 8};
};

TEST_F(BlockTableTest, TheLongestUnusedIsTakenFirst) {
  for (uint32_t e = 0; e < 4; ++e) ASSERT_TRUE(Put(Key(0, e)).valid());
  const BlockId first = table_.Find(Key(0, 0));
  table_.Lease(first);
  table_.Release(first);  // now the latest
  Put(Key(1, 0));
  EXPECT_FALSE(table_.Find(Key(0, 1)).valid());
  EXPECT_TRUE(table_.FindValid(Key(0, 0)).valid());
  EXPECT_EQ(table_.valid_count(), 4u);
  table_.CheckInvariants();
}

TEST_F(BlockTableTest, LeasedResidentAndHeldBlocksAreNotTaken) {
  for (uint32_t e = 0; e < 4; ++e) Put(Key(0, e));
  table_.Lease(table_.Find(Key(0, 0)), 2);
  table_.SetResident(table_.Find(Key(0, 1)), true);
  const BlockId held = table_.Find(Key(0, 2));
  const auto held_elsewhere = [held](BlockId block) { return block == held; };
  const BlockId taken = table_.Take(0, held_elsewhere);
  EXPECT_TRUE(taken.valid());
  EXPECT_FALSE(table_.Find(Key(0, 3)).valid());
  EXPECT_FALSE(table_.Take(0, held_elsewhere).valid());
  EXPECT_EQ(table_.Take(0, nullptr), held);
  table_.Release(table_.Find(Key(0, 0)));
  EXPECT_FALSE(table_.Take(0, nullptr).valid());  // one lease is left
  table_.CheckInvariants();
}

TEST_F(BlockTableTest, AnAbandonedBlockComesBackWhenNothingWritesToItAnyMore) {
  const BlockId block = table_.Take(0, nullptr);
  table_.Fill(block, Key(0, 5));
  EXPECT_TRUE(table_.Find(Key(0, 5)).valid());
  EXPECT_FALSE(table_.FindValid(Key(0, 5)).valid());
  table_.Abandon(block, /*still_written=*/true);
  EXPECT_FALSE(table_.Find(Key(0, 5)).valid());
  for (uint32_t e = 0; e < 3; ++e) EXPECT_NE(table_.Take(0, nullptr), block);
  EXPECT_FALSE(table_.Take(0, nullptr).valid());
  table_.Recover(block);
  EXPECT_EQ(table_.Take(0, nullptr), block);
}

TEST_F(BlockTableTest, RetiredBlocksAreGoneForGood) {
  table_.Retire(table_.Take(0, nullptr));
  EXPECT_EQ(table_.usable_count(0), 3u);
  for (uint32_t e = 0; e < 8; ++e) EXPECT_TRUE(Put(Key(0, e)).valid());
  EXPECT_EQ(table_.valid_count(), 3u);
  table_.CheckInvariants();
}

TEST_F(BlockTableTest, ResidentsThatGoSoonAreTakenBeforeTheOthers) {
  for (uint32_t e = 0; e < 4; ++e) Put(Key(0, e));
  const BlockId last = table_.Find(Key(0, 3));
  table_.SetResident(last, true);
  table_.SetResident(last, false, BlockTable::Reuse::kSoon);
  EXPECT_EQ(table_.Take(0, nullptr), last);
}

// Against a plain model: a map of who is where, with the order of last use.
TEST_F(BlockTableTest, AgreesWithAPlainModelOverRandomCalls) {
  Prng prng(5);
  std::map<ExpertKey, uint32_t> leases;  // of valid blocks
  std::set<ExpertKey> residents;
  for (uint32_t step = 0; step < 20'000; ++step) {
    const ExpertKey key = Key(prng.Below(2), prng.Below(8));
    const BlockId block = table_.FindValid(key);
    ASSERT_EQ(block.valid(), leases.contains(key)) << step;
    if (!block.valid()) {
      const BlockId put = Put(key);
      std::erase_if(leases, [&](const auto& entry) {
        if (entry.first == key || table_.Find(entry.first).valid()) return false;
        EXPECT_EQ(entry.second, 0u);
        EXPECT_FALSE(residents.contains(entry.first));
        return true;
      });
      if (put.valid()) leases[key] = 0;
      continue;
    }
    switch (prng.Below(3)) {
      case 0:
        table_.Lease(block), ++leases[key];
        break;
      case 1:
        if (leases[key] == 0) break;
        table_.Release(block), --leases[key];
        break;
      default: {
        const bool resident = residents.contains(key);
        if (!resident && residents.size() >= 2) break;
        table_.SetResident(block, !resident);
        resident ? (void)residents.erase(key) : (void)residents.insert(key);
      }
    }
    if (step % 100 == 0) table_.CheckInvariants();
  }
}

}  // namespace
}  // namespace hearth
