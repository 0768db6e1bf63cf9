// The shapes that `hearth pack synth` knows: equal to the files in profiles/, to the model that
// ships and to the published hash constants; and what overriding them gives.
#include "pack/synth/synthetic_geometry.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/convert/hf_config.h"
#include "pack/convert/ngram_constants.h"
#include "pack/format/manifest.h"
#include "runtime/base/file.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const std::string& path) {
  const auto text = ReadFile(std::string(HEARTH_SOURCE_DIR "/") + path, 1_MiB);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

Json GeometryJson(const ModelGeometry& geometry) {
  Manifest manifest;
  manifest.geometry = geometry;
  return Json::parse(manifest.ToJson())["geometry"];
}

TEST(NamedGeometry, IsTheOneInProfiles) {
  for (const SyntheticModel model : kSyntheticModels) {
    const std::string name = SyntheticModelName(model);
    const Json file = Json::parse(Text("profiles/models/" + name + ".json"));
    EXPECT_EQ(file["name"], name);
    EXPECT_EQ(file["geometry"], GeometryJson(NamedGeometry(model))) << name;
    EXPECT_TRUE(NamedGeometry(model).Validate().ok()) << name;
  }
}

TEST(NamedGeometry, OfFlashletIsWhatItsConfigurationSays) {
  auto config = ParseHfConfig({.config_path = "config.json",
                               .config = Text("profiles/flashlet/config.json"),
                               .generation_path = "generation_config.json",
                               .generation = Text("profiles/flashlet/generation_config.json")});
  ASSERT_TRUE(config.ok()) << config.status();
  ModelGeometry& geometry = config->geometry;
  ASSERT_TRUE(
      DeriveNgramConstants(config->ngram_derivation, geometry.vocab_count, geometry.ngram).ok());
  EXPECT_EQ(GeometryJson(geometry), GeometryJson(NamedGeometry(SyntheticModel::kFlashlet)));
}

TEST(NamedGeometry, OfFlashNextHasThePublishedConstants) {
  const ModelGeometry g = NamedGeometry(SyntheticModel::kFlashNext);
  EXPECT_THAT(g.ngram.multipliers, ElementsAre(23703573157769u, 20109073645365u, 8052911324071u));
  EXPECT_EQ(g.ngram.row_count, 320'001'536u);
  EXPECT_EQ(g.layer_count(), 48u);
  EXPECT_EQ(std::count(g.layers.begin(), g.layers.end(), MixerKind::kQsa), 12);
  const auto layout = ExpertLayout::Create(ExpertFormat::kNvfp4, g.hidden, g.moe.expert_width);
  EXPECT_EQ(layout->blob_bytes(), 2'764'816u);
}

TEST(SyntheticGeometry, TakesEveryOverride) {
  const auto g = MakeSyntheticGeometry({.model = SyntheticModel::kFlashlet,
                                        .layer_count = 1,
                                        .expert_count = 24,
                                        .experts_per_token = 3,
                                        .hidden = 128,
                                        .expert_width = 48,
                                        .ngram_head_rows = 100});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->layer_count(), 1u);
  EXPECT_EQ(g->ngram.layer, 0u) << "the table moves to a layer that is there";
  EXPECT_EQ(g->moe.expert_count, 24u);
  EXPECT_EQ(g->moe.experts_per_token, 3u);
  EXPECT_EQ(g->hidden, 128u);
  EXPECT_EQ(g->moe.expert_width, 48u);
  EXPECT_EQ(g->ngram.head_rows[0], 101u) << "the first prime";
  EXPECT_FALSE(g->has_mtp);
}

TEST(SyntheticGeometry, ComesNearTheBytesAskedFor) {
  for (const uint64_t bytes : {400_MiB, 1536_MiB, 12_GiB}) {
    const auto g = MakeSyntheticGeometry({.model = SyntheticModel::kSmall, .experts_bytes = bytes});
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(g->moe.expert_count % kExpertCountStep, 0u);
    const uint64_t step = uint64_t{2'768'896} * g->layer_count() * kExpertCountStep;
    const uint64_t made = step / kExpertCountStep * g->moe.expert_count;
    EXPECT_LE(made > bytes ? made - bytes : bytes - made, step / 2) << FormatBytes(bytes);
  }
}

TEST(SyntheticGeometry, RefusesWhatDoesNotFit) {
  const auto refusal = [](const SyntheticShape& shape) {
    const absl::Status status = MakeSyntheticGeometry(shape).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.expert_count = 8, .experts_bytes = 1_GiB}), HasSubstr("experts_bytes"));
  EXPECT_THAT(refusal({.expert_count = 4}), HasSubstr("a token takes 10"));
  EXPECT_THAT(refusal({.hidden = 100}), HasSubstr("multiples of 16"));
  EXPECT_THAT(refusal({.model = SyntheticModel::kSmall, .has_mtp = true}),
              HasSubstr("no MTP head"));
  EXPECT_THAT(refusal({.experts_bytes = uint64_t{1} << 50}), HasSubstr("take more layers"));
  EXPECT_THAT(refusal({.layer_count = 5000}), HasSubstr("layer count"));
  EXPECT_THAT(refusal({.ngram_head_rows = 0}), HasSubstr("ngram_vocab_size_base"));
  EXPECT_THAT(refusal({.hidden = 16, .format = ExpertFormat::kXt, .xt_bits = XtBits::All(3)}),
              HasSubstr("multiples of 32"));
}

}  // namespace
}  // namespace hearth
