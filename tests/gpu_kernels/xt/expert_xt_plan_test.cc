// PlanExpertXt: host arithmetic, so these run everywhere. The parts of a workspace lie one after
// another, and what does not fit is refused by name.
#include "gtest/gtest.h"

#include "gpu_kernels/ops/xt/expert_xt.h"

namespace hearth {
namespace {

constexpr GpuLimits kHopper = {.multiprocessor_count = 132, .shared_bytes_per_block_max = 232448};
constexpr GpuLimits kAda = {.multiprocessor_count = 128, .shared_bytes_per_block_max = 101376};

ExpertXtDesc DescOf(uint32_t hidden, uint32_t width, uint32_t rows_max = 4) {
  return {.layout = {ExpertFormat::kXt, hidden, width, XtBits::All(3)},
          .item_count_max = 10,
          .rows_max = rows_max,
          .entry_count_max = 24};
}

TEST(ExpertXtPlan, FlashNextByHand) {
  const absl::StatusOr<ExpertXtPlan> plan = PlanExpertXt(DescOf(2560, 640), kHopper);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->block_count, 132u);
  EXPECT_EQ(plan->kind, XtDecodeKind::kHalfLevels);
  EXPECT_EQ(plan->shared_bytes, 192u << 10);
  EXPECT_EQ(plan->down_sum_offset_bytes, 24u * 2 * 640 * 4);
  EXPECT_EQ(plan->h_q_offset_bytes, plan->down_sum_offset_bytes + 24 * 2560 * 4);
  EXPECT_EQ(plan->h_scale_offset_bytes, plan->h_q_offset_bytes + 24 * 640);
  EXPECT_EQ(plan->h_sum_offset_bytes, plan->h_scale_offset_bytes + 256);
  EXPECT_EQ(plan->workspace_bytes, plan->h_sum_offset_bytes + 256);
}

TEST(ExpertXtPlan, SmallerSharedMemoryHasSmallerTables) {
  const absl::StatusOr<ExpertXtPlan> plan = PlanExpertXt(DescOf(256, 64), kAda);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kind, XtDecodeKind::kSplit);
  EXPECT_EQ(plan->shared_bytes, 64u << 10);
}

TEST(ExpertXtPlan, RefusesWhatDoesNotFit) {
  ExpertXtDesc desc = DescOf(256, 64);
  desc.layout = {ExpertFormat::kNvfp4, 256, 64, {}};
  EXPECT_EQ(PlanExpertXt(desc, kHopper).status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint32_t rows : {0u, kExpertRowsMax + 1}) {
    EXPECT_EQ(PlanExpertXt(DescOf(256, 64, rows), kHopper).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  desc = DescOf(256, 64);
  desc.item_count_max = 0;
  EXPECT_FALSE(PlanExpertXt(desc, kHopper).ok());
  desc.item_count_max = kExpertItemsMax + 1;
  EXPECT_FALSE(PlanExpertXt(desc, kHopper).ok());
  desc = DescOf(256, 64);
  desc.entry_count_max = 41;
  EXPECT_FALSE(PlanExpertXt(desc, kHopper).ok());
  EXPECT_FALSE(PlanExpertXt(DescOf(256, 8224), kHopper).ok());
  desc = DescOf(8192, 8192);
  desc.item_count_max = kExpertItemsMax;
  EXPECT_FALSE(PlanExpertXt(desc, kHopper).ok());
  EXPECT_FALSE(PlanExpertXt(DescOf(256, 64),
                            {.multiprocessor_count = 1, .shared_bytes_per_block_max = 48u << 10})
                   .ok());
}

}  // namespace
}  // namespace hearth
