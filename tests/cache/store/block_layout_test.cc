// Memory for experts is shared out between the classes in whole blocks, and too little is refused.
#include "cache/store/block_layout.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

TEST(BlockLayout, AnyBudgetIsUsedUpToLessThanABlockAndNoBlocksOverlap) {
  const StoreFixture store;
  const ExpertFile& file = store.file();
  const uint64_t least = LeastBlockBytes(file), all = AllBlockBytes(file);
  ASSERT_NE(file.layout(LayerId(0)).stride_bytes(), file.layout(LayerId(3)).stride_bytes());
  uint64_t block_bytes_max = 0;
  for (uint64_t budget = least; budget < all + 1'000'000; budget += 77'777) {
    const absl::StatusOr<BlockLayout> layout = LayOutBlocks(file, budget);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ASSERT_EQ(layout->classes.size(), 2u);
    EXPECT_LE(layout->bytes(), budget);
    uint64_t next_offset = 0;
    uint32_t next_block = 0;
    for (const BlockClass& c : layout->classes) {
      EXPECT_EQ(c.memory_offset_bytes, next_offset);
      EXPECT_EQ(c.block_begin, next_block);
      EXPECT_GE(c.block_count, kClassBlocksMin);
      EXPECT_LE(c.block_count, c.key_count);
      next_offset += c.block_count * c.block_bytes;
      next_block += c.block_count;
      block_bytes_max = std::max(block_bytes_max, c.block_bytes);
    }
    EXPECT_GT(layout->bytes() + block_bytes_max, std::min(budget, all));
    EXPECT_EQ(layout->block_count, next_block);
  }
  EXPECT_EQ(LayOutBlocks(file, all)->block_count, store.keys().size());
}

TEST(BlockLayout, ClassesShareInProportionToTheirBytes) {
  const StoreFixture store({.trunk_layers = 7, .expert_count = 64});
  const BlockLayout layout = *LayOutBlocks(store.file(), AllBlockBytes(store.file()) / 2);
  for (const BlockClass& c : layout.classes) {
    EXPECT_NEAR(static_cast<double>(c.block_count) / c.key_count, 0.5, 0.06);
  }
}

TEST(BlockLayout, TooLittleIsRefusedWithTheLeastThatWorks) {
  const StoreFixture store;
  const uint64_t least = LeastBlockBytes(store.file());
  const absl::Status status = LayOutBlocks(store.file(), least - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(absl::StrCat(least, " bytes")), absl::string_view::npos)
      << status;
  EXPECT_TRUE(LayOutBlocks(store.file(), least).ok());
}

}  // namespace
}  // namespace hearth
