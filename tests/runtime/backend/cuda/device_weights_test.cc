// Where the dense weights go: every tensor but the embedding table once, aligned, none on another.
#include "runtime/backend/cuda/device_weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/backend/cuda/cuda_backend.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

TEST(WeightImage, EveryTensorButTheEmbeddingsHasAPlace) {
  const TemporaryPack files(HashModel(), DenseChoice::kQ8);
  const absl::StatusOr<Pack> pack = Pack::Open(files.dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  const auto weights = ModelWeights::Load(*pack, Q8Handling::kKeep);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const WeightImage image = PlanWeightImage(*weights);
  EXPECT_EQ(image.bytes, CudaWeightBytes(*pack));
  uint64_t end = 0;
  size_t tensors = pack->dense.tensors().size() - 1;
  if (pack->mtp) tensors += pack->mtp->tensors().size();
  EXPECT_EQ(image.copies.size(), tensors);
  for (const WeightCopy& copy : image.copies) {
    EXPECT_EQ(copy.offset_bytes % 256, 0u);
    EXPECT_GE(copy.offset_bytes, end);
    EXPECT_FALSE(copy.from.empty());
    EXPECT_NE(copy.from.data(), weights->embed_tokens.data.data());
    end = copy.offset_bytes + copy.from.size();
  }
  EXPECT_LE(end, image.bytes);

  auto* const base = reinterpret_cast<const std::byte*>(uint64_t{1} << 30);
  const GpuModelWeights placed = PlaceWeights(*weights, base);
  ASSERT_EQ(placed.layers.size(), weights->layers.size());
  const auto offset_of = [&](const std::byte* from) {
    const auto it = std::find_if(image.copies.begin(), image.copies.end(),
                                 [&](const WeightCopy& c) { return c.from.data() == from; });
    return it == image.copies.end() ? UINT64_MAX : it->offset_bytes;
  };
  for (size_t l = 0; l < placed.layers.size(); ++l) {
    EXPECT_EQ(placed.layers[l].mixer, weights->layers[l].mixer);
    EXPECT_EQ(placed.layers[l].ngram.has_value(), weights->layers[l].ngram.has_value());
    EXPECT_EQ(placed.layers[l].moe.router.data,
              base + offset_of(weights->layers[l].moe.router.data.data()));
    EXPECT_EQ(placed.layers[l].mixer_hc.down.rows, weights->layers[l].mixer_hc.down.rows);
    EXPECT_EQ(placed.layers[l].mixer_hc.down.format, weights->layers[l].mixer_hc.down.format);
  }
  EXPECT_EQ(placed.lm_head.data, base + offset_of(weights->lm_head.data.data()));
  EXPECT_EQ(placed.final_mixer.inject.rows, 0u);
  EXPECT_EQ(placed.mtp.has_value(), weights->mtp.has_value());
}

}  // namespace
}  // namespace hearth
