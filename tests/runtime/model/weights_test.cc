// Dense weights bind by name and shape, and Q8 decodes to what its definition says.
#include "runtime/model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "pack/format/float_codes.h"
#include "runtime/base/prng.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

TEST(DecodeQ8Matrix, FollowsTheLayoutValueByValue) {
  constexpr uint32_t kRows = 21, kCols = 96;  // a padded second band
  Prng prng(1);
  std::vector<int> codes(kRows * kCols);
  std::vector<float> scales(kRows * (kCols / 32));
  std::vector<std::byte> bytes(MatrixBytes(MatrixFormat::kQ8, kRows, kCols));
  for (uint32_t row = 0; row < kRows; ++row) {
    std::byte* band = bytes.data() + row / 16 * Q8BandBytes(kCols);
    for (uint32_t block = 0; block < kCols / 32; ++block) {
      const auto scale = static_cast<uint16_t>(0x2000 + prng.Below(0x1000));
      scales[row * 3 + block] = DecodeFp16(scale);
      std::memcpy(band + kCols * 16 + (block * 16 + row % 16) * 2, &scale, 2);
      for (uint32_t i = 0; i < 32; ++i) {
        const int code = static_cast<int>(prng.Below(255)) - 127;
        codes[row * kCols + block * 32 + i] = code;
        band[block * 512 + i / 4 * 64 + row % 16 * 4 + i % 4] = static_cast<std::byte>(code + 128);
      }
    }
  }
  std::vector<float> decoded(kRows * kCols);
  DecodeQ8Matrix({.format = MatrixFormat::kQ8, .rows = kRows, .cols = kCols, .data = bytes},
                 decoded);
  for (size_t i = 0; i < decoded.size(); ++i) {
    EXPECT_EQ(decoded[i], static_cast<float>(codes[i]) * scales[i / 32]) << i;
  }
}

TEST(ModelWeights, BytesPerPassAreThoseOfTheDenseFileWithoutTheEmbedding) {
  const TemporaryPack dir(HashModel(), DenseChoice::kBf16);
  const absl::StatusOr<Pack> pack = Pack::Open(dir.dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  const auto weights = ModelWeights::Load(*pack, Q8Handling::kKeep);
  ASSERT_TRUE(weights.ok()) << weights.status();
  uint64_t bytes = 0;
  for (const TensorInfo& t : pack->dense.tensors()) {
    if (t.name != "embed_tokens") bytes += AlignUp(t.bytes, 64);
  }
  EXPECT_EQ(weights->bytes_per_pass(), bytes);
  EXPECT_EQ(weights->layers.size(), 4u);
  EXPECT_TRUE(weights->layers[1].ngram.has_value());
  EXPECT_FALSE(weights->layers[0].ngram.has_value());
  EXPECT_TRUE(weights->mtp.has_value());
}

// A pack whose manifest was made for another shape, or that lacks a tensor, is refused by name.
TEST(ModelWeights, WrongOrMissingTensorsAreNamed) {
  const TemporaryPack dir(HashModel(), DenseChoice::kBf16);
  absl::StatusOr<Pack> pack = Pack::Open(dir.dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  pack->manifest.geometry.hc_rank = 16;
  absl::Status status = ModelWeights::Load(*pack, Q8Handling::kKeep).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("input_mix_weight_down"), absl::string_view::npos) << status;
  pack->manifest.geometry.hc_rank = 8;
  pack->manifest.geometry.layers[3] = MixerKind::kGdn;
  status = ModelWeights::Load(*pack, Q8Handling::kKeep).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("layers.3.linear_attn.in_proj_qkv"), absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace hearth
