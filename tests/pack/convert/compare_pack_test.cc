// ComparePack finds what a pack does not share with its source, and says that equal ones are equal.
#include "pack/convert/compare_pack.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/reader/inspect.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<CompareReport> BuildAndCompare(const SyntheticOptions& built,
                                              const SyntheticOptions& against,
                                              const BuildOptions& options) {
  const SyntheticCheckpoint source(built);
  if (const auto report = BuildPack(source, options, nullptr); !report.ok()) {
    return report.status();
  }
  const auto pack = Pack::Open(options.out);
  if (!pack.ok()) return pack.status();
  return ComparePack(*pack, SyntheticCheckpoint(against), nullptr, 2);
}

TEST(ComparePack, ProvesEveryFormatEqualToItsSource) {
  for (const ExpertFormat format :
       {ExpertFormat::kNvfp4, ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    FixtureDir dir;
    const SyntheticOptions model = {.experts = format, .mtp_experts = ExpertFormat::kFp8};
    const auto report = BuildAndCompare(model, model, {.from = "", .out = dir.File("pack")});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->differences[0];
    EXPECT_EQ(report->experts_equal, 9u);
    EXPECT_EQ(report->experts_reencoded, 0u);
    EXPECT_EQ(report->ngram_rows_equal, 40u);
    EXPECT_GT(report->tensors_encoded, 0u);
  }
}

TEST(ComparePack, ReencodesWhatWasQuantised) {
  FixtureDir dir;
  const SyntheticOptions model = {.experts = ExpertFormat::kBf16};
  const auto report = BuildAndCompare(
      model, model,
      {.from = "", .out = dir.File("pack"), .experts = {.choice = ExpertChoice::kNvfp4}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << report->differences[0];
  EXPECT_EQ(report->experts_reencoded, 6u);
  EXPECT_EQ(report->experts_equal, 3u) << "the MTP layer keeps its format";
}

TEST(ComparePack, NamesEveryDifferenceFromAnotherModel) {
  FixtureDir dir;
  const auto report =
      BuildAndCompare({.seed = 1}, {.seed = 2}, {.from = "", .out = dir.File("pack")});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->experts_equal, 0u);
  EXPECT_EQ(report->ngram_rows_equal, 0u);
  EXPECT_THAT(report->differences[0], HasSubstr("layer 0 expert 0: gate: codes differ"));
  EXPECT_THAT(report->differences, testing::Contains(HasSubstr("tensor embed_tokens")));
}

TEST(ComparePack, RefusesAnotherGeometry) {
  FixtureDir dir;
  const auto report = BuildAndCompare({}, {.expert_count = 4}, {.from = "", .out = dir.File("p")});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SummarisePack, CountsValuesAndBits) {
  FixtureDir dir;
  const SyntheticCheckpoint source({.hidden = 64, .width = 32});
  ASSERT_TRUE(BuildPack(source, {.from = "", .out = dir.File("pack")}, nullptr).ok());
  const auto pack = Pack::Open(dir.File("pack"));
  ASSERT_TRUE(pack.ok()) << pack.status();
  const PackSummary summary = SummarisePack(*pack);
  EXPECT_EQ(summary.experts.at("nvfp4").count, 6u);
  EXPECT_EQ(summary.experts.at("nvfp4").values, 6u * 3 * 64 * 32);
  EXPECT_EQ(summary.experts.at("bf16").count, 3u);
  EXPECT_EQ(summary.expert_layer_formats, (std::vector<std::string>{"nvfp4", "nvfp4", "bf16"}));
  EXPECT_GT(BitsPerValue(summary.experts.at("nvfp4")), 4.5);
  EXPECT_LT(BitsPerValue(summary.experts.at("nvfp4")), 4.8) << "trailer and alignment";
  EXPECT_EQ(BitsPerValue(summary.dense.at("bf16")), 16);
  uint64_t dense_values = 0;
  for (const DenseInfo& info : source.dense()) dense_values += info.rows * info.cols;
  EXPECT_EQ(summary.parameters(), dense_values + 9 * 3 * 64 * 32 + 40 * 16);
  EXPECT_THAT(SummaryText(summary), HasSubstr("hidden 64"));
  EXPECT_THAT(SummaryJson(summary), HasSubstr("\"expert_format\":\"nvfp4\""));
}

}  // namespace
}  // namespace hearth
