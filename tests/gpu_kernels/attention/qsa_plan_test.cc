// What the plan of sparse attention covers and refuses; needs no GPU.
#include "gtest/gtest.h"

#include "gpu_kernels/ops/attention/qsa.h"
#include "tests/gpu_kernels/attention/qsa_case.h"

namespace hearth {
namespace {

QsaDesc FlashNext(uint32_t rows, uint32_t context) {
  return {.attention = FlashNextAttention(),
          .norm_epsilon = 1e-6f,
          .rows_max = rows,
          .context_max = context};
}

TEST(QsaPlan, CutsTheWorkspaceInAlignedParts) {
  const absl::StatusOr<QsaPlan> plan = PlanQsa(FlashNext(2048, 262144));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->split_count, 33u);  // of 2051 positions
  EXPECT_EQ(plan->score_stride, 65536u);
  EXPECT_EQ(plan->score_rows, 256u);  // 64 MiB of scores
  EXPECT_EQ(plan->chosen_offset_bytes, 64ull << 20);
  EXPECT_EQ(plan->partial_offset_bytes, (64ull << 20) + 2048 * 512 * 4);
  EXPECT_EQ(plan->softmax_offset_bytes, plan->partial_offset_bytes + 2048ull * 24 * 256 * 4);
  EXPECT_EQ(plan->workspace_bytes, plan->softmax_offset_bytes + 2048ull * 24 * 8);
}

TEST(QsaPlan, AWindowHasAPlaceForEveryShare) {
  const absl::StatusOr<QsaPlan> plan = PlanQsa(FlashNext(9, 32768));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->score_rows, 9u);
  EXPECT_EQ(plan->softmax_offset_bytes - plan->partial_offset_bytes, 9ull * 33 * 24 * 256 * 4);
}

TEST(QsaPlan, AContextWithoutAChoiceHasNoScores) {
  const absl::StatusOr<QsaPlan> plan = PlanQsa(FlashNext(9, 2051));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->score_rows, 0u);
  EXPECT_EQ(plan->partial_offset_bytes, 0u);
  EXPECT_EQ(plan->split_count, 33u);
  EXPECT_EQ(PlanQsa(FlashNext(9, 640))->split_count, 10u);
}

TEST(QsaPlan, RefusesWhatNoKernelCovers) {
  QsaDesc desc = FlashNext(9, 4096);
  desc.attention.head_dim = 257;
  const absl::Status status = PlanQsa(desc).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("head_dim is 257"), absl::string_view::npos) << status;
  desc = FlashNext(9, 4096);
  desc.attention.head_count = 34;
  EXPECT_FALSE(PlanQsa(desc).ok());
  desc = FlashNext(9, 262145);
  EXPECT_FALSE(PlanQsa(desc).ok());
  desc = FlashNext(0, 4096);
  EXPECT_FALSE(PlanQsa(desc).ok());
  desc = FlashNext(9, 4096);
  desc.attention.kv_head_count = 0;
  EXPECT_FALSE(PlanQsa(desc).ok());
  desc = FlashNext(9, 4096);
  desc.attention.block_tokens = 0;
  EXPECT_FALSE(PlanQsa(desc).ok());
}

TEST(QsaPlan, CoversEveryGeometryOfTheTests) {
  for (const AttentionGeometry& a : {FlashNextAttention(), FlashletAttention(), TinyAttention(),
                                     OddAttention(), NarrowAttention()}) {
    EXPECT_TRUE(
        PlanQsa({.attention = a, .norm_epsilon = 1e-6f, .rows_max = 9, .context_max = 240}).ok());
  }
}

TEST(QsaMustSelect, FromTheFirstBlockTooMany) {
  EXPECT_FALSE(QsaMustSelect(FlashNextAttention(), 2050));
  EXPECT_TRUE(QsaMustSelect(FlashNextAttention(), 2051));
  EXPECT_TRUE(QsaMustSelect(TinyAttention(), 19));
}

TEST(QsaStateBytes, FollowTheFormat) {
  QsaDesc desc = FlashNext(9, 4096);
  EXPECT_EQ(QsaStateBytesOf(desc, 32).kv, 4096ull * 2 * 256 * 2);
  EXPECT_EQ(QsaStateBytesOf(desc, 32).kv_scale, 0u);
  EXPECT_EQ(QsaStateBytesOf(desc, 32).raw_keys, 32ull * 128 * 4);
  EXPECT_EQ(QsaStateBytesOf(desc, 32).block_keys, 1024ull * 128 * 4);
  desc.kv_format = KvFormat::kInt8;
  EXPECT_EQ(QsaStateBytesOf(desc, 32).kv, 4096ull * 2 * 256);
  EXPECT_EQ(QsaStateBytesOf(desc, 32).kv_scale, 4096ull * 2 * 4);
}

}  // namespace
}  // namespace hearth
