// The whole network against a float64 reference, on a model whose weights are a hash of their
// names: every mechanism, the end-of-text reset of the n-gram window, sparse attention from
// position 19 on, the MTP head. And the same logits however the tokens are split into passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/engine/scorer.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

constexpr float kTolerance = 1e-4f;

struct Golden {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<float>> mtp_logits;
  std::vector<float> mtp_chained;
};

const Golden& TheGolden() {
  static const Golden golden = [] {
    std::ifstream in(HEARTH_SOURCE_DIR "/tests/golden/tiny_golden.json");
    const nlohmann::json j = nlohmann::json::parse(in);
    return Golden{.tokens = j["tokens"],
                  .logits = j["logits"],
                  .mtp_logits = j["mtp_logits"],
                  .mtp_chained = j["mtp_chained"][0]};
  }();
  return golden;
}

class HashModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<TemporaryPack>(HashModel(), DenseChoice::kBf16);
  }
  static void TearDownTestSuite() { pack_.reset(); }

  static std::vector<std::vector<float>> LogitsOf(ModelRunner& runner,
                                                  const std::vector<uint32_t>& splits) {
    std::vector<std::vector<float>> rows;
    const absl::StatusOr<Score> score =
        ScoreTokens(runner, TheGolden().tokens,
                    {.on_logits =
                         [&](uint32_t, std::span<const float> row) {
                           rows.emplace_back(row.begin(), row.end());
                         },
                     .splits = splits});
    EXPECT_TRUE(score.ok()) << score.status();
    return rows;
  }

  static std::unique_ptr<TemporaryPack> pack_;
};
std::unique_ptr<TemporaryPack> HashModelTest::pack_;

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;  // a NaN difference wins
  }
  return worst;
}

void ExpectGolden(const std::vector<std::vector<float>>& rows) {
  ASSERT_EQ(rows.size(), TheGolden().logits.size());
  for (size_t t = 0; t < rows.size(); ++t) {
    EXPECT_LE(LargestDifference(rows[t], TheGolden().logits[t]), kTolerance) << "position " << t;
  }
}

TEST_F(HashModelTest, LogitsEqualTheReferenceHoweverTheTokensAreSplit) {
  LoadedRunner runner(pack_->dir(), {.options = {.arithmetic = Arithmetic::kReference}});
  {
    SCOPED_TRACE("one chunk");
    ExpectGolden(LogitsOf(*runner, {45}));
  }
  {
    SCOPED_TRACE("chunks of five");
    ExpectGolden(LogitsOf(*runner, {5}));
  }
  {
    SCOPED_TRACE("token by token");
    ExpectGolden(LogitsOf(*runner, {1}));
  }
  {
    SCOPED_TRACE("mixed");
    ExpectGolden(LogitsOf(*runner, {17, 12, 1}));
  }
}

TEST_F(HashModelTest, EveryInstructionSetGivesTheSameBits) {
  std::vector<std::vector<float>> first;
  for (const CpuKernels& kernels : AllCpuKernels()) {
    if (!Supports(DetectCpuFeatures(), kernels.isa)) continue;
    for (const uint32_t workers : {1u, 3u}) {
      LoadedRunner runner(pack_->dir(), {.options = {.arithmetic = Arithmetic::kReference},
                                         .worker_count = workers,
                                         .kernels = &kernels});
      const std::vector<std::vector<float>> rows = LogitsOf(*runner, {17, 12, 1});
      if (first.empty()) first = rows;
      EXPECT_EQ(rows, first) << IsaName(kernels.isa) << ", " << workers << " workers";
    }
  }
}

// Positions 0..43 pair h_i with t_(i+1); then one chained step from the last.
TEST_F(HashModelTest, DraftHeadEqualsTheReference) {
  LoadedRunner runner(pack_->dir(), {.options = {.arithmetic = Arithmetic::kReference}});
  const Golden& golden = TheGolden();
  const std::unique_ptr<Sequence> sequence = *runner->CreateSequence(64);
  const Segment segment{.sequence = sequence.get(), .tokens = golden.tokens};
  ASSERT_TRUE(runner->RunTrunk({&segment, 1}, Phase::kPrompt).ok());
  ASSERT_TRUE(runner->Commit(*sequence, 45).ok());
  ASSERT_TRUE(
      runner->RunDraft(*sequence, std::span(golden.tokens).subspan(1), Backend::DraftSource::kTrunk)
          .ok());
  std::vector<float> logits(512);
  for (uint32_t row = 0; row < 44; ++row) {
    ASSERT_TRUE(runner->Head(row, 1, logits).ok());
    EXPECT_LE(LargestDifference(logits, golden.mtp_logits[row]), kTolerance) << "pair " << row;
  }
  const TokenId next = 346;
  ASSERT_TRUE(runner->RunDraft(*sequence, {&next, 1}, Backend::DraftSource::kChained).ok());
  ASSERT_TRUE(runner->Head(0, 1, logits).ok());
  EXPECT_LE(LargestDifference(logits, golden.mtp_chained), kTolerance);
}

}  // namespace
}  // namespace hearth
