// How a prompt's experts are cut into tiles, and what the workspace takes.
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu_kernels/ops/prompt/expert_gemm.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

TEST(ExpertGemmPlan, TilesCoverEveryEntryOnceAndLieByClass) {
  Prng prng(3);
  ExpertGemmTiles tiles;
  for (uint32_t round = 0; round < 50; ++round) {
    std::vector<ExpertFfnItem> items;
    uint32_t entries = 0;
    for (uint32_t i = 0; i < 40; ++i) {
      const auto rows = static_cast<uint32_t>(1 + prng.Below(i % 7 == 0 ? 900 : 120));
      items.push_back({nullptr, entries, rows});
      entries += rows;
    }
    const uint32_t columns_max = kGemmClassColumns[round % kGemmClassCount];
    CutExpertGemm(items, columns_max, tiles);
    ASSERT_EQ(tiles.class_begin[0], 0u);
    ASSERT_EQ(tiles.class_begin[kGemmClassCount], tiles.tiles.size());
    std::vector<uint32_t> seen(entries);
    for (uint32_t c = 0; c < kGemmClassCount; ++c) {
      const uint32_t columns_min = c == 0 ? 1 : kGemmClassColumns[c - 1] + 1;
      for (uint32_t t = tiles.class_begin[c]; t < tiles.class_begin[c + 1]; ++t) {
        const ExpertGemmTile& tile = tiles.tiles[t];
        const ExpertFfnItem& item = items[tile.item];
        EXPECT_LE(tile.columns, kGemmClassColumns[c]);
        EXPECT_LE(tile.columns, columns_max);
        EXPECT_GE(tile.columns, columns_min);
        EXPECT_GE(tile.entry_begin, item.entry_begin);
        EXPECT_LE(tile.entry_begin + tile.columns, item.entry_begin + item.entry_count);
        for (uint32_t k = 0; k < tile.columns; ++k) ++seen[tile.entry_begin + k];
      }
    }
    EXPECT_THAT(seen, testing::Each(1u));
    EXPECT_LE(tiles.tiles.size(), ExpertGemmTileBound(items.size(), entries, columns_max));
  }
}

TEST(ExpertGemmPlan, AnExpertIsCutIntoTheFewestTilesOfNearlyEqualColumns) {
  ExpertGemmTiles tiles;
  const ExpertFfnItem item{nullptr, 0, 100};
  CutExpertGemm({&item, 1}, 96, tiles);
  ASSERT_EQ(tiles.tiles.size(), 2u);
  EXPECT_EQ(tiles.tiles[0].columns, 50u);
  EXPECT_EQ(tiles.tiles[1].columns, 50u);
  CutExpertGemm({}, 96, tiles);
  EXPECT_TRUE(tiles.tiles.empty());
}

TEST(ExpertGemmPlan, ClassesAreThoseThatTheCardsSharedMemoryHolds) {
  const auto columns = [](uint32_t kib) {
    return ExpertGemmColumnsMax(ExpertGemmKind::kWarp, {.shared_bytes_per_block_max = kib << 10});
  };
  EXPECT_EQ(columns(227), 96u);  // sm_90
  EXPECT_EQ(columns(99), 48u);   // sm_86, 89, 120
  EXPECT_EQ(columns(64), 16u);
  EXPECT_EQ(columns(1), 0u);
  EXPECT_EQ(ExpertGemmColumnsMax(ExpertGemmKind::kWarpgroup, {}), 128u);
}

TEST(ExpertGemmPlan, OtherCardsThanSm90HaveTheKernelsOfWarps) {
  for (const uint32_t sm : {80u, 86u, 89u, 100u, 120u}) {
    EXPECT_EQ(ExpertGemmKindFor({.sm = sm}), ExpertGemmKind::kWarp);
  }
}

TEST(ExpertGemmPlan, WorkspacePartsAreAlignedAndDoNotOverlap) {
  const ExpertLayout layout{ExpertFormat::kNvfp4, 2560, 640};
  const absl::StatusOr<ExpertGemmPlan> plan =
      PlanExpertGemm({.layout = layout, .row_count = 33, .entry_count = 330});
  ASSERT_TRUE(plan.ok());
  EXPECT_GE(plan->x_scale_offset_bytes, 33u * 2560 * 2);
  EXPECT_GE(plan->h_offset_bytes, plan->x_scale_offset_bytes + 33u * 80 * 4);
  EXPECT_GE(plan->h_scale_offset_bytes, plan->h_offset_bytes + 330u * 640 * 2);
  EXPECT_GE(plan->workspace_bytes, plan->h_scale_offset_bytes + 330u * 20 * 4);
  EXPECT_EQ((plan->x_scale_offset_bytes | plan->h_offset_bytes | plan->h_scale_offset_bytes) % 256,
            0u);
}

TEST(ExpertGemmPlan, OtherFormatsAndNothingAreRefused) {
  const ExpertLayout bf16{ExpertFormat::kBf16, 2560, 640};
  EXPECT_THAT(
      std::string(
          PlanExpertGemm({.layout = bf16, .row_count = 1, .entry_count = 1}).status().message()),
      testing::HasSubstr("bf16"));
  const ExpertLayout nvfp4{ExpertFormat::kNvfp4, 2560, 640};
  EXPECT_EQ(PlanExpertGemm({.layout = nvfp4, .entry_count = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanExpertGemm({.layout = nvfp4, .row_count = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
