// What the CPU backend refuses, its routing weights by hand, and that decoding allocates nothing.
// The network itself is tested end to end in tests/runtime/engine.
#include "runtime/backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "runtime/backend/cpu/route_weights.h"
#include "tests/support/allocation_count.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

TEST(RouteWeights, FollowTheModelsNormalisation) {
  const std::vector<float> scores = {2, 1, 0, -1};
  const std::vector<uint32_t> chosen = {0, 1};
  std::vector<float> weight(2);
  RouteWeights({.expert_count = 4, .experts_per_token = 2, .renormalise = false}, scores, chosen,
               weight);
  EXPECT_NEAR(weight[0], 0.6439f, 1e-4f);
  EXPECT_NEAR(weight[1], 0.2369f, 1e-4f);
  RouteWeights({.expert_count = 4, .experts_per_token = 2, .renormalise = true}, scores, chosen,
               weight);
  EXPECT_NEAR(weight[0], 0.7311f, 1e-4f);
  EXPECT_NEAR(weight[1], 0.2689f, 1e-4f);
}

// The router of one layer holds a value that is not a number, as a damaged checkpoint would.
class DamagedModel final : public HashModel {
 public:
  absl::Status ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                             std::span<float> out) const override {
    const absl::Status status = HashModel::ReadDenseRows(name, row_begin, row_count, out);
    if (name == "layers.2.mlp.gate" && row_begin == 0) {
      out[3] = std::numeric_limits<float>::quiet_NaN();
    }
    return status;
  }
};

class CpuBackendTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<TemporaryPack>(HashModel(), DenseChoice::kBf16);
  }
  static void TearDownTestSuite() { pack_.reset(); }
  static absl::Status Pass(ModelRunner& runner, Sequence& sequence,
                           const std::vector<TokenId>& tokens, Phase phase) {
    const Segment segment{.sequence = &sequence, .tokens = tokens};
    return runner.RunTrunk({&segment, 1}, phase);
  }
  static std::unique_ptr<TemporaryPack> pack_;
};
std::unique_ptr<TemporaryPack> CpuBackendTest::pack_;

TEST_F(CpuBackendTest, RouterScoreThatIsNotANumberIsAnErrorThatNamesTheLayer) {
  const TemporaryPack damaged(DamagedModel(), DenseChoice::kBf16);
  LoadedRunner runner(damaged.dir(), {});
  const auto sequence = *runner->CreateSequence(16);
  const absl::Status status = Pass(*runner, *sequence, {1, 2}, Phase::kPrompt);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find("layer 2"), absl::string_view::npos) << status;
}

TEST_F(CpuBackendTest, RefusesTokensOutsideTheVocabulary) {
  LoadedRunner runner(pack_->dir(), {});
  const auto sequence = *runner->CreateSequence(16);
  EXPECT_EQ(Pass(*runner, *sequence, {1, -1}, Phase::kPrompt).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Pass(*runner, *sequence, {512}, Phase::kPrompt).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Pass(*runner, *sequence, {511}, Phase::kPrompt).ok()) << "nothing was left open";
}

TEST_F(CpuBackendTest, ModelThatDoesNotFitTheMemoryIsRefusedWithItsParts) {
  absl::StatusOr<Pack> pack = Pack::Open(pack_->dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  const uint64_t experts = pack->experts.file().bytes();
  WorkerTeam team(1);
  SteadyClock clock;
  const absl::Status status =
      ModelRunner::Load(*std::move(pack),
                        {.memory = {.available_bytes = experts, .source = "this test"}},
                        AllCpuKernels().back(), team, clock, nullptr)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"dense weights", "experts", "state of 256 tokens", "this test"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  }
}

TEST_F(CpuBackendTest, RefusesMoreThanTheContextHolds) {
  LoadedRunner runner(pack_->dir(), {});
  EXPECT_EQ(runner->CreateSequence(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runner->CreateSequence(257).status().code(), absl::StatusCode::kInvalidArgument);
  const auto sequence = *runner->CreateSequence(4);
  ASSERT_TRUE(Pass(*runner, *sequence, {1, 2, 3}, Phase::kPrompt).ok());
  ASSERT_TRUE(runner->Commit(*sequence, 3).ok());
  EXPECT_EQ(Pass(*runner, *sequence, {4, 5}, Phase::kWindow).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Pass(*runner, *sequence, {4}, Phase::kWindow).ok());
}

TEST_F(CpuBackendTest, RefusesPassesOutOfTurn) {
  LoadedRunner runner(pack_->dir(), {.options = {.limits = {.prompt_rows_max = 16}}});
  const auto sequence = *runner->CreateSequence(64);
  EXPECT_EQ(runner->Commit(*sequence, 0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Pass(*runner, *sequence, {}, Phase::kWindow).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Pass(*runner, *sequence, std::vector<TokenId>(10, 1), Phase::kWindow).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Pass(*runner, *sequence, std::vector<TokenId>(17, 1), Phase::kPrompt).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Pass(*runner, *sequence, {1, 2, 3}, Phase::kPrompt).ok());
  EXPECT_EQ(Pass(*runner, *sequence, {4}, Phase::kWindow).code(),
            absl::StatusCode::kFailedPrecondition)
      << "the prompt pass is not committed";
  EXPECT_EQ(runner->Commit(*sequence, 2).code(), absl::StatusCode::kInvalidArgument)
      << "a prompt pass is kept whole";
  EXPECT_EQ(runner->Commit(*sequence, 4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(runner->Commit(*sequence, 3).ok());
}

TEST_F(CpuBackendTest, DraftingNeedsTheTrunksHiddenStates) {
  LoadedRunner runner(pack_->dir(), {});
  const auto sequence = *runner->CreateSequence(64);
  const TokenId token = 5;
  EXPECT_EQ(runner->RunDraft(*sequence, {&token, 1}, Backend::DraftSource::kTrunk).code(),
            absl::StatusCode::kFailedPrecondition);
  for (int pass = 0; pass < 2; ++pass) {  // the first pass's states are gone after the second
    ASSERT_TRUE(Pass(*runner, *sequence, {1, 2, 3}, Phase::kPrompt).ok());
    ASSERT_TRUE(runner->Commit(*sequence, 3).ok());
  }
  EXPECT_EQ(runner->RunDraft(*sequence, {&token, 1}, Backend::DraftSource::kTrunk).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CpuBackendTest, DecodingAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer owns operator new";
  for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kReference}) {
    LoadedRunner runner(pack_->dir(), {.options = {.arithmetic = arithmetic}});
    const auto sequence = *runner->CreateSequence(128);
    std::vector<float> logits(4 * 512);
    const std::vector<TokenId> window = {7, 8, 9, 10};
    const Segment segment{.sequence = sequence.get(), .tokens = window};
    ASSERT_TRUE(Pass(*runner, *sequence, std::vector<TokenId>(40, 3), Phase::kPrompt).ok());
    ASSERT_TRUE(runner->Commit(*sequence, 40).ok());
    bool ok = true;
    uint64_t before = 0;
    for (int step = 0; step < 8; ++step) {
      if (step == 2) before = AllocationCount();  // by then every lazy buffer exists
      ok = ok && runner->RunTrunk({&segment, 1}, Phase::kWindow).ok();
      ok = ok && runner->Head(0, 4, logits).ok();
      ok = ok && runner->Commit(*sequence, 1 + step % 4).ok();
    }
    EXPECT_EQ(AllocationCount() - before, 0u);
    EXPECT_TRUE(ok);
  }
}

}  // namespace
}  // namespace hearth
