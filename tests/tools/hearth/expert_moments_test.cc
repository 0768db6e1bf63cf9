// tools/hearth/expert_moments.h: moments of what experts read become feedback, within their memory.
#include "tools/hearth/expert_moments.h"

#include <gtest/gtest.h>

#include "pack/format/xt_matrix.h"
#include "runtime/base/prng.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth::cli {
namespace {

constexpr SyntheticOptions kModel = {.hidden = 64, .width = 32, .expert_count = 3};

std::vector<float> RandomRows(uint32_t rows, uint32_t cols, uint64_t seed) {
  Prng random(seed);
  std::vector<float> values(size_t{rows} * cols);
  for (float& v : values) v = static_cast<float>(random.Uniform() - 0.4);
  return values;
}

// Rows 0 and 1 go to expert 0, all five to expert 2, none to expert 1.
WindowPlan Plan() {
  WindowPlan plan;
  plan.experts = {{.expert = ExpertId(0), .entry_begin = 0, .entry_count = 2},
                  {.expert = ExpertId(2), .entry_begin = 2, .entry_count = 5}};
  plan.entries = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {4, 0}};
  return plan;
}

std::vector<float> RotatedMoment(std::vector<float> rows, uint32_t cols) {
  std::vector<float> moment(size_t{cols} * cols);
  for (size_t at = 0; at < rows.size(); at += cols) RotateXt(std::span(rows).subspan(at, cols));
  AddSecondMomentRows(rows, cols, 0, cols, moment);
  MirrorLower(moment, cols);
  return moment;
}

class ExpertMomentsTest : public testing::Test {
 protected:
  std::unique_ptr<ExpertMoments> Collected(uint64_t memory_bytes_max) {
    auto moments = ExpertMoments::Create(SyntheticGeometry(kModel), team_,
                                         {.memory_bytes_max = memory_bytes_max});
    EXPECT_TRUE(moments.ok()) << moments.status();
    const WindowPlan plan = Plan();
    for (uint32_t layer = 0; layer < 3; ++layer) {  // the last one is the MTP layer's
      (*moments)->OnExperts(LayerId(layer), {.plan = plan, .x = x_, .hidden = h_});
    }
    return *std::move(moments);
  }

  WorkerTeam team_{2};
  const std::vector<float> x_ = RandomRows(5, kModel.hidden, 1);
  const std::vector<float> h_ = RandomRows(7, kModel.width, 2);
};

TEST_F(ExpertMomentsTest, FeedbackIsThatOfTheRotatedRows) {
  const std::unique_ptr<ExpertMoments> moments = Collected(uint64_t{1} << 30);
  EXPECT_TRUE(moments->per_expert());
  EXPECT_EQ(moments->row_count(), 5u);
  const auto feedback = moments->FeedbackOf({LayerId(1), ExpertId(2)});
  ASSERT_TRUE(feedback.ok()) << feedback.status();
  const auto expected = XtFeedback::Create(RotatedMoment(x_, kModel.hidden), kModel.hidden, 0.01);
  ASSERT_TRUE(expected.ok());
  const std::span<const float> want = expected->OfBlock(0);
  const std::span<const float> got = feedback->gate_up->OfBlock(0);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4f) << i;
  ASSERT_NE(feedback->down, nullptr);
  EXPECT_EQ(feedback->down->cols(), kModel.width);
}

TEST_F(ExpertMomentsTest, AnExpertThatNoRowChoseGetsItsLayersMoment) {
  const std::unique_ptr<ExpertMoments> moments = Collected(uint64_t{1} << 30);
  const auto unused = moments->FeedbackOf({LayerId(0), ExpertId(1)});
  ASSERT_TRUE(unused.ok()) << unused.status();
  const auto layer = XtFeedback::Create(RotatedMoment(h_, kModel.width), kModel.width, 0.01);
  std::vector<float> error(kModel.width, 0.0f);
  error[3] = 1;
  error[20] = -2;
  EXPECT_NEAR(unused->down->Loss(error), layer->Loss(error), 1e-4 * layer->Loss(error));
}

TEST_F(ExpertMomentsTest, SharesTheMomentOfALayerWhenMemoryIsShort) {
  const uint64_t shared_bytes = uint64_t{2} * (64 * 64 + 32 * 32) * sizeof(float);
  const std::unique_ptr<ExpertMoments> moments = Collected(shared_bytes);
  EXPECT_FALSE(moments->per_expert());
  EXPECT_EQ(moments->memory_bytes(), shared_bytes);
  const auto one = moments->FeedbackOf({LayerId(0), ExpertId(0)});
  const auto two = moments->FeedbackOf({LayerId(0), ExpertId(2)});
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->down, two->down);
  const auto refused = ExpertMoments::Create(SyntheticGeometry(kModel), team_,
                                             {.memory_bytes_max = shared_bytes - 1});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hearth::cli
