// Goal: the two trained checkpoints that ship with the project open and stand for the same model.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/convert/checkpoint.h"
#include "pack/quant/nvfp4_source.h"
#include "runtime/base/file.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

const std::string kNvfp4Dir = std::string(HEARTH_SOURCE_DIR) + "/profiles/flashlet";
const char* const kBf16Dir = "/work/shared/flashlet/bf16";

void ExpectFlashletShape(const ModelGeometry& g) {
  EXPECT_EQ(g.vocab_count, 8192u);
  EXPECT_EQ(g.hidden, 256u);
  EXPECT_EQ(g.layer_count(), 8u);
  EXPECT_EQ(g.layers[3], MixerKind::kQsa);
  EXPECT_EQ(g.attention.rotary_dim, 16u);
  EXPECT_EQ(g.attention.rope_theta, 1e6);
  EXPECT_EQ(g.mtp_rope_theta, 1e6);
  EXPECT_EQ(g.attention.block_count_max, 32u);
  EXPECT_EQ(g.gdn.output_gate, OutputGate::kSilu);
  EXPECT_EQ(g.moe.expert_count, 64u);
  EXPECT_EQ(g.ngram.layer, 1u);
  EXPECT_EQ(g.ngram.row_count, 80384u);
  EXPECT_EQ(g.ngram.row_dim, 32u);
  EXPECT_TRUE(g.has_mtp);
  EXPECT_THAT(g.stop_tokens, ElementsAre(2, 0));
}

TEST(FlashletCheckpoint, Nvfp4OpensAndEveryExpertReads) {
  const auto checkpoint = Checkpoint::Open(kNvfp4Dir);
  ASSERT_EQ(checkpoint.status(), absl::OkStatus());
  ExpectFlashletShape((*checkpoint)->geometry());
  EXPECT_EQ((*checkpoint)->dialect(), "modelopt-nvfp4");
  EXPECT_EQ((*checkpoint)->expert_format(LayerId(0)), ExpertFormat::kNvfp4);
  EXPECT_EQ((*checkpoint)->expert_format(LayerId(8)), ExpertFormat::kFp8);
  EXPECT_EQ((*checkpoint)->ngram().format, NgramRowFormat::kFp8);
  SourceExpert expert;
  for (uint32_t layer = 0; layer < 9; ++layer) {
    for (uint32_t e = 0; e < 64; e += 7) {
      EXPECT_EQ((*checkpoint)->ReadExpert({LayerId(layer), ExpertId(e)}, expert), absl::OkStatus());
    }
  }
}

// The NVFP4 model was quantised from the BF16 one: a wrong order or scale would decorrelate them.
TEST(FlashletCheckpoint, Nvfp4ExpertsFollowTheBf16Ones) {
  if (!FileExists(std::string(kBf16Dir) + "/config.json")) GTEST_SKIP() << "needs " << kBf16Dir;
  const auto quantised = Checkpoint::Open(kNvfp4Dir);
  const auto original = Checkpoint::Open(kBf16Dir);
  ASSERT_EQ(quantised.status(), absl::OkStatus());
  ASSERT_EQ(original.status(), absl::OkStatus());
  ExpectFlashletShape((*original)->geometry());
  EXPECT_EQ((*original)->dialect(), "bf16");
  SourceExpert a, b;
  for (const ExpertKey key : {ExpertKey{LayerId(0), ExpertId(0)}, {LayerId(7), ExpertId(63)}}) {
    ASSERT_EQ((*quantised)->ReadExpert(key, a), absl::OkStatus());
    ASSERT_EQ((*original)->ReadExpert(key, b), absl::OkStatus());
    for (const auto part : {&SourceExpert::gate, &SourceExpert::up, &SourceExpert::down}) {
      std::vector<float> values((b.*part).values.size());
      DecodeNvfp4((a.*part).codes, (a.*part).scales, (a.*part).multiplier, values);
      double error = 0, power = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        error += std::pow(values[i] - (b.*part).values[i], 2);
        power += std::pow((b.*part).values[i], 2);
      }
      EXPECT_LT(error, 0.02 * power);  // 4-bit noise is near 0.9 % of a Gaussian's power
    }
  }
}

}  // namespace
}  // namespace hearth
