// Packs with XT experts, built and requantized: pack/convert/expert_choice.h, expert_writer.h,
// requantize.h and EncodeXtExpert of expert_repack.h.
#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/convert/build_pack.h"
#include "pack/convert/compare_pack.h"
#include "pack/convert/expert_choice.h"
#include "pack/convert/requantize.h"
#include "pack/reader/inspect.h"
#include "pack/reader/pack.h"
#include "pack/reader/verify.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr XtBits kMixed = {.gate = 4, .up = 3, .down = 2};

ExpertTarget Xt(XtBits bits) { return {.choice = ExpertChoice::kXt, .xt_bits = bits}; }

SyntheticOptions Model(ExpertFormat format) {
  return {.hidden = 32, .width = 32, .expert_count = 2, .experts = format};
}

BuildOptions To(const std::string& out, const ExpertTarget& target, uint32_t workers = 2) {
  return {.from = "", .out = out, .experts = target, .worker_count = workers};
}

Pack BuildAndOpen(const SyntheticOptions& model, const BuildOptions& options) {
  const auto report = BuildPack(SyntheticCheckpoint(model), options, nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
  absl::StatusOr<Pack> pack = Pack::Open(options.out);
  EXPECT_TRUE(pack.ok()) << pack.status();
  return *std::move(pack);
}

TEST(ExpertTarget, ReadsFormatsAndMixedRates) {
  EXPECT_EQ(*ParseExpertTarget("source"), ExpertTarget{});
  EXPECT_EQ(ParseExpertTarget("bf16")->choice, ExpertChoice::kBf16);
  EXPECT_EQ(*ParseExpertTarget("xt3"), Xt(XtBits::All(3)));
  EXPECT_EQ(*ParseExpertTarget("xt4-3-2"), Xt(kMixed));
  for (const char* wrong : {"", "xt", "xt1", "xt5", "xt33", "xt4-3", "xt4-3-5", "xt4_3_3", "q8"}) {
    const auto target = ParseExpertTarget(wrong);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(target.status().message()), HasSubstr("xt4-3-3"));
  }
}

TEST(XtPack, BuiltFromEverySourceFormatIsNearItAndSaysSo) {
  FixtureDir dir;
  for (const ExpertFormat format :
       {ExpertFormat::kNvfp4, ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    const SyntheticOptions model = Model(format);
    const std::string out = dir.File(ExpertFormatName(format));
    const Pack pack = BuildAndOpen(model, To(out, Xt(kMixed)));
    EXPECT_EQ(pack.manifest.experts, "xt4-3-2");
    EXPECT_THAT(pack.manifest.made_by, HasSubstr("without feedback"));
    EXPECT_EQ(pack.experts.layout(LayerId(0)).xt_bits, kMixed);
    EXPECT_EQ(pack.experts.layout(LayerId(2)).format, ExpertFormat::kBf16) << "the MTP layer";
    EXPECT_EQ(SummarisePack(pack).expert_layer_formats[1], "xt4-3-2");
    const auto verified = VerifyPack(out, nullptr, 2);
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->ok());
    const auto compared = ComparePack(pack, SyntheticCheckpoint(model), nullptr, 2);
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_TRUE(compared->ok()) << compared->differences[0];
    EXPECT_EQ(compared->experts_near, 4u);
    EXPECT_EQ(compared->experts_equal, 2u) << "the MTP layer";
  }
}

TEST(XtPack, ComparesUnequalToAnotherModel) {
  FixtureDir dir;
  SyntheticOptions model = Model(ExpertFormat::kBf16);
  const Pack pack = BuildAndOpen(model, To(dir.File("pack"), Xt(XtBits::All(2))));
  model.seed = 9;
  const auto compared = ComparePack(pack, SyntheticCheckpoint(model), nullptr, 2);
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_EQ(compared->experts_near, 0u);
  EXPECT_THAT(compared->differences[0], HasSubstr("layer 0 expert 0: gate: decoded weights"));
}

TEST(XtPack, WorkersDoNotChangeAByte) {
  FixtureDir dir;
  const SyntheticOptions model = Model(ExpertFormat::kBf16);
  const Pack one = BuildAndOpen(model, To(dir.File("one"), Xt(XtBits::All(4)), 1));
  const Pack four = BuildAndOpen(model, To(dir.File("four"), Xt(XtBits::All(4)), 4));
  for (size_t i = 0; i < one.manifest.files.size(); ++i) {
    EXPECT_EQ(one.manifest.files[i].xxh3_128, four.manifest.files[i].xxh3_128)
        << one.manifest.files[i].name;
  }
}

TEST(XtPack, ShapesThatDoNotFitAndSourcesThatEndAreNamedAndLeaveNothing) {
  FixtureDir dir;
  SyntheticOptions narrow = Model(ExpertFormat::kBf16);
  narrow.width = 16;
  const auto refused =
      BuildPack(SyntheticCheckpoint(narrow), To(dir.File("pack"), Xt(XtBits::All(3))), nullptr);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("layer 0"));
  SyntheticCheckpoint broken(Model(ExpertFormat::kBf16));
  broken.fail_at_layer = 1;
  const auto failed = BuildPack(broken, To(dir.File("pack"), Xt(XtBits::All(2))), nullptr);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("the source ends here"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(XtPack, ProgressCountsWeightsToTheEnd) {
  FixtureDir dir;
  uint64_t done = 0, total = 0;
  const auto report =
      BuildPack(SyntheticCheckpoint(Model(ExpertFormat::kBf16)),
                To(dir.File("pack"), Xt(XtBits::All(2))), [&](const BuildProgress& p) {
                  if (!p.counts_weights) return;
                  EXPECT_GT(p.done_bytes, done);
                  done = p.done_bytes;
                  total = p.total_bytes;
                });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(done, uint64_t{2 * 2 * 3 * 32 * 32});
  EXPECT_EQ(total, done);
}

class RequantizeTest : public testing::Test {
 protected:
  RequantizeTest()
      : source_(BuildAndOpen(Model(ExpertFormat::kBf16), To(dir_.File("source"), ExpertTarget{}))) {
  }
  RequantizeOptions Options(const std::string& name, const ExpertTarget& target) const {
    return {.out = dir_.File(name),
            .experts = target,
            .feedback_note = "noted here",
            .worker_count = 2,
            .made_by = "test"};
  }

  FixtureDir dir_;
  Pack source_;
};

TEST_F(RequantizeTest, CopiesAllButTheExpertsAndSaysHowItWasMade) {
  const auto report = RequantizePack(source_, Options("xt", Xt(XtBits::All(3))), nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto pack = Pack::Open(dir_.File("xt"));
  ASSERT_TRUE(pack.ok()) << pack.status();
  EXPECT_EQ(pack->manifest.experts, "xt3");
  EXPECT_THAT(pack->manifest.made_by, HasSubstr("test; experts xt3 from bf16 noted here"));
  EXPECT_EQ(pack->manifest.source_xxh3_128, source_.manifest.source_xxh3_128);
  ASSERT_EQ(pack->manifest.files.size(), source_.manifest.files.size());
  for (size_t i = 0; i < pack->manifest.files.size(); ++i) {
    const PackFile& file = pack->manifest.files[i];
    EXPECT_EQ(file.xxh3_128 == source_.manifest.files[i].xxh3_128, file.name != "experts.bin")
        << file.name;
  }
  const auto verified = VerifyPack(dir_.File("xt"), nullptr, 2);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->ok());
}

TEST_F(RequantizeTest, GivesTheBytesOfABuildFromTheSameValues) {
  ASSERT_TRUE(RequantizePack(source_, Options("xt", Xt(kMixed)), nullptr).ok());
  const Pack built = BuildAndOpen(Model(ExpertFormat::kBf16), To(dir_.File("built"), Xt(kMixed)));
  EXPECT_EQ(ReadFixtureFile(dir_.File("xt") + "/experts.bin"),
            ReadFixtureFile(dir_.File("built") + "/experts.bin"));
}

TEST_F(RequantizeTest, AsksForTheFeedbackOfEveryTrunkExpertInOrder) {
  RequantizeOptions options = Options("xt", Xt(XtBits::All(2)));
  std::vector<std::pair<uint32_t, uint32_t>> asked;
  std::vector<float> moment(32 * 32, 0.5f);
  for (uint32_t i = 0; i < 32; ++i) moment[i * 33] = 1.0f;
  const auto shared = std::make_shared<const XtFeedback>(*XtFeedback::Create(moment, 32, 0.01));
  options.feedback = [&](ExpertKey key) -> absl::StatusOr<XtExpertFeedback> {
    asked.emplace_back(key.layer.value, key.expert.value);
    return XtExpertFeedback{.gate_up = shared, .down = shared};
  };
  ASSERT_TRUE(RequantizePack(source_, options, nullptr).ok());
  EXPECT_THAT(asked, testing::ElementsAre(std::pair(0u, 0u), std::pair(0u, 1u), std::pair(1u, 0u),
                                          std::pair(1u, 1u)));
  options.out = dir_.File("failing");
  options.feedback = [](ExpertKey key) -> absl::StatusOr<XtExpertFeedback> {
    if (key.layer.value == 0) return XtExpertFeedback{};
    return absl::InvalidArgumentError("no inputs");
  };
  const auto failed = RequantizePack(source_, options, nullptr);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("layer 1 expert 0: no inputs"));
  EXPECT_FALSE(std::filesystem::exists(options.out));
}

TEST_F(RequantizeTest, RefusesToEncodeXtAgain) {
  ASSERT_TRUE(RequantizePack(source_, Options("xt", Xt(XtBits::All(2))), nullptr).ok());
  const auto pack = Pack::Open(dir_.File("xt"));
  ASSERT_TRUE(pack.ok());
  for (const ExpertTarget& target :
       {Xt(XtBits::All(4)), ExpertTarget{.choice = ExpertChoice::kNvfp4}}) {
    const auto again = RequantizePack(*pack, Options("again", target), nullptr);
    EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(again.status().message()), HasSubstr("experts in xt2 cannot become"));
  }
}

TEST_F(RequantizeTest, FindsDamageInWhatItCopies) {
  std::string dense = ReadFixtureFile(dir_.File("source") + "/dense.bin");
  dense[dense.size() / 2] = static_cast<char>(dense[dense.size() / 2] ^ 1);
  WriteFixtureFile(dir_.File("source") + "/dense.bin", dense);
  const auto damaged = RequantizePack(source_, Options("xt", Xt(XtBits::All(2))), nullptr);
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("dense.bin"));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("xt")));
}

}  // namespace
}  // namespace hearth
