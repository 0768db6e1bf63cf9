// PlanExpertFfn: host arithmetic, so these run everywhere. Every output has a block, every block
// fits the GPU, and what does not fit is refused by name.
#include "gtest/gtest.h"

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/expert.h"
#include "gpu_kernels/ops/expert_ffn.h"

namespace hearth {
namespace {

constexpr GpuLimits kHopper = {.multiprocessor_count = 132, .shared_bytes_per_block_max = 232448};
constexpr GpuLimits kAmpere = {.multiprocessor_count = 84, .shared_bytes_per_block_max = 101376};

ExpertFfnDesc DescOf(uint32_t hidden, uint32_t width, uint32_t rows_max, uint32_t items = 10) {
  return {.layout = {ExpertFormat::kNvfp4, hidden, width},
          .item_count = items,
          .rows_max = rows_max,
          .entry_count = items * rows_max,
          .allows_one_launch = true};
}

TEST(ExpertFfnPlan, FlashNextByHand) {
  const absl::StatusOr<ExpertFfnPlan> plan = PlanExpertFfn(DescOf(2560, 640, 3), kHopper);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows_class, 4u);
  EXPECT_EQ(plan->gate_up.segments, 8u);  // 2560 / 320
  EXPECT_EQ(plan->gate_up.bands_per_block, 2u);
  EXPECT_EQ(plan->gate_up.blocks_per_item, 20u);  // 40 bands
  EXPECT_EQ(plan->gate_up.threads, 128u);         // 2 bands, 2 projections, 8 segments, 4 lanes
  EXPECT_EQ(plan->gate_up.shared_bytes, 4u * 8 * 21 * 16 + 4 * 160 * 8);
  EXPECT_EQ(plan->down.segments, 2u);
  EXPECT_EQ(plan->down.bands_per_block, 16u);
  EXPECT_EQ(plan->down.blocks_per_item, 10u);  // 160 bands
  EXPECT_EQ(plan->down.threads, 128u);
  EXPECT_EQ(plan->down.shared_bytes, 32u * 4 * 16 * 4);  // 32 units' sums are more than the rows
  EXPECT_EQ(plan->h_offset_bytes, 256u);
  EXPECT_EQ(plan->h_scale_offset_bytes, 256 + 30u * 640);
  EXPECT_EQ(plan->h_sum_offset_bytes,
            plan->h_scale_offset_bytes + 2560);  // 30 * 20 * 4, rounded up
  EXPECT_EQ(plan->workspace_bytes, plan->h_sum_offset_bytes + 30 * 20 * 2 * 4);
}

TEST(ExpertFfnPlan, ShortListsOfFewRowsTakeOneLaunchWhereThereIsRoom) {
  const auto stream_of = [](const ExpertFfnDesc& desc, const GpuLimits& gpu) {
    const absl::StatusOr<ExpertFfnPlan> plan = PlanExpertFfn(desc, gpu);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->stream;
  };
  const ExpertFfnStreamPlan stream = stream_of(DescOf(2560, 640, 3, 30), kHopper);
  EXPECT_EQ(stream.blocks, 132u);
  EXPECT_EQ(stream.warps, 16u);
  EXPECT_EQ(stream.grain_slots, 2u);
  // Two pairs of 40 sub-blocks and x for each warp; two grains of four bands of eight segments.
  EXPECT_EQ(stream.shared_bytes,
            16u * (2 * (40 * (128 + 16) + 16) + 640 + 8 * 80 + 32) + 2 * 4 * 8 * 3 * 16 * 4 + 6144);
  ExpertFfnDesc two_launches = DescOf(2560, 640, 3, 30);
  two_launches.allows_one_launch = false;
  EXPECT_EQ(stream_of(two_launches, kHopper).blocks, 0u);
  EXPECT_EQ(stream_of(DescOf(2560, 640, 3, 49), kHopper).blocks, 0u);
  EXPECT_EQ(stream_of(DescOf(2560, 640, 5, 30), kHopper).blocks, 0u);
  EXPECT_EQ(stream_of(DescOf(2576, 640, 3, 30), kHopper).blocks, 0u);
  EXPECT_EQ(stream_of(DescOf(2560, 320, 3, 30), kHopper).blocks, 0u);
  EXPECT_EQ(stream_of(DescOf(2560, 640, 3, 30), kAmpere).blocks, 0u);
}

void CheckCut(const ExpertFfnCut& cut, uint32_t cols, uint32_t bands, uint32_t projections) {
  EXPECT_EQ(cut.segments, (cols + kSegmentValues - 1) / kSegmentValues);
  EXPECT_EQ(cut.threads % 32, 0u);
  EXPECT_LE(cut.threads, 512u);
  EXPECT_GE(cut.threads, cut.bands_per_block * projections * cut.segments * 4);
  EXPECT_GE(cut.blocks_per_item * cut.bands_per_block, bands);
  EXPECT_LT((cut.blocks_per_item - 1) * cut.bands_per_block, bands);
}

TEST(ExpertFfnPlan, EveryShapeThatIsAcceptedCoversItsBandsOnce) {
  for (uint32_t hidden = 16; hidden <= 5120; hidden += hidden < 700 ? 16 : 528) {
    for (const uint32_t width : {16u, 32u, 48u, 320u, 336u, 640u, 1536u, 5120u}) {
      for (uint32_t rows = 1; rows <= kExpertRowsMax; ++rows) {
        const absl::StatusOr<ExpertFfnPlan> plan =
            PlanExpertFfn(DescOf(hidden, width, rows), kAmpere);
        ASSERT_TRUE(plan.ok()) << hidden << " " << width << " " << rows << plan.status();
        CheckCut(plan->gate_up, hidden, width / 16, 2);
        EXPECT_EQ(plan->gate_up.bands_per_block % 2, 0u);  // 32 values of h are quantised together
        CheckCut(plan->down, width, hidden / 16, 1);
        EXPECT_GE(plan->rows_class, rows);
        const uint64_t blocks = uint64_t{10} * rows * ActivationBlocks(width);
        EXPECT_GE(plan->h_scale_offset_bytes - plan->h_offset_bytes, blocks * 32);
        EXPECT_GE(plan->h_sum_offset_bytes - plan->h_scale_offset_bytes, blocks * 4);
        EXPECT_EQ(plan->workspace_bytes - plan->h_sum_offset_bytes, blocks * 8);
      }
    }
  }
}

TEST(ExpertFfnPlan, RefusesByName) {
  const auto message = [](const ExpertFfnDesc& desc, const GpuLimits& gpu) {
    const absl::Status status = PlanExpertFfn(desc, gpu).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message(DescOf(2560, 640, 0), kHopper), "rows_max 0: expected 1 to 8"));
  EXPECT_TRUE(has(message(DescOf(2560, 640, 9), kHopper), "rows_max 9"));
  EXPECT_TRUE(has(message(DescOf(2560, 640, 1, 0), kHopper), "item_count 0"));
  EXPECT_TRUE(has(message(DescOf(2560, 640, 1, kExpertItemsMax + 1), kHopper), "item_count 32769"));
  EXPECT_TRUE(has(message(DescOf(2560, 648, 1), kHopper), "multiples of 16"));
  EXPECT_TRUE(has(message(DescOf(10256, 640, 1), kHopper), "takes at most 10240"));
  EXPECT_TRUE(has(message(DescOf(10240, 640, 8), kAmpere), "bytes of shared memory"));
  ExpertFfnDesc desc = DescOf(2560, 640, 4);
  desc.entry_count = 41;
  EXPECT_TRUE(has(message(desc, kHopper), "entry_count 41: expected 10 to 40"));
  desc.entry_count = 9;
  EXPECT_TRUE(has(message(desc, kHopper), "entry_count 9"));
  desc = DescOf(2560, 640, 4);
  desc.layout.format = ExpertFormat::kBf16;
  EXPECT_TRUE(has(message(desc, kHopper), "experts in bf16"));
}

TEST(ExpertFfnPlan, TheLongestReductionFitsItsGpu) {
  EXPECT_TRUE(PlanExpertFfn(DescOf(10240, 640, 8), kHopper).ok());
  EXPECT_TRUE(PlanExpertFfn(DescOf(10240, 640, 4), kAmpere).ok());
}

}  // namespace
}  // namespace hearth
