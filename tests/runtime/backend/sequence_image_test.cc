// Images of the CPU backend's sequences: a hashed model with n-grams and an MTP head, the trained
// one, both arithmetics.
#include "runtime/backend/sequence_image.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/backend/cpu/cpu_imager.h"
#include "runtime/base/prng.h"
#include "tests/support/golden_file.h"
#include "tests/support/hash_model.h"
#include "tests/support/image_checks.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

std::vector<TokenId> RandomTokens(size_t count, uint32_t vocab) {
  Prng prng(17);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(prng.Below(vocab));
  return tokens;
}

class SequenceImageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<TemporaryPack>(HashModel(), DenseChoice::kBf16);
  }
  static void TearDownTestSuite() { pack_.reset(); }
  static std::unique_ptr<TemporaryPack> pack_;
};
std::unique_ptr<TemporaryPack> SequenceImageTest::pack_;

TEST_F(SequenceImageTest, RestoredSequencesGoOnAsTheOneThatReadAll) {
  const std::vector<TokenId> tokens = RandomTokens(150, 512);
  for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kReference}) {
    LoadedRunner runner(pack_->dir(),
                        {.options = {.arithmetic = arithmetic, .limits = {.prompt_rows_max = 40}}});
    for (const bool drafts : {false, true}) {
      // One token, fewer than any window looks back, blocks begun and complete, full passes.
      for (const std::vector<uint32_t>& cuts : std::vector<std::vector<uint32_t>>{
               {1, 2, 3, 7, 8, 33}, {40, 80, 81, 120}, {2, 42, 80}}) {
        ImageChecks(*runner, tokens, cuts, drafts).RestoredSequencesGoOnAsTheOneThatReadAll();
      }
    }
  }
}

TEST_F(SequenceImageTest, WhatDoesNotFitIsRefused) {
  const std::vector<TokenId> tokens = RandomTokens(60, 512);
  LoadedRunner runner(pack_->dir(), {});
  for (const bool drafts : {false, true}) {
    ImageChecks(*runner, tokens, {21}, drafts).WhatDoesNotFitIsRefused();
  }
}

// Sparse attention chooses among blocks, in the MTP layer too.
TEST(SequenceImage, OfTheTrainedModel) {
  const TemporaryPack pack(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8);
  LoadedRunner runner(pack.dir(), {.options = {.limits = {.prompt_rows_max = 128}}});
  const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
  const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
  const std::vector<TokenId> tokens(ids.begin(), ids.begin() + 440);
  ImageChecks(*runner, tokens, {128, 256, 300, 410}, true)
      .RestoredSequencesGoOnAsTheOneThatReadAll();
}

TEST(SequenceImage, SizesFollowTheGeometry) {
  const ModelGeometry g = HashModel().geometry();
  const CpuImager imager(g);
  const uint64_t whole = imager.span_bytes({0, 97, 0, 96});
  EXPECT_EQ(whole, imager.span_bytes({0, 30, 0, 29}) + imager.span_bytes({30, 97, 29, 96}))
      << "spans of a conversation take what one would";
  EXPECT_EQ(imager.span_bytes({}), 0u);
  EXPECT_EQ(imager.span_bytes({40, 40, 39, 39}), 0u);
}

TEST(SequenceImage, DraftsCountWhenTheTokensDetermineAllOfThem) {
  EXPECT_EQ(ImageDraftCountOf({.token_count = 0, .draft_count = 0}), 0u);
  EXPECT_EQ(ImageDraftCountOf({.token_count = 1, .draft_count = 0}), 0u);
  EXPECT_EQ(ImageDraftCountOf({.token_count = 9, .draft_count = 9}), 8u) << "one row looked ahead";
  EXPECT_EQ(ImageDraftCountOf({.token_count = 9, .draft_count = 8}), 8u);
  EXPECT_EQ(ImageDraftCountOf({.token_count = 9, .draft_count = 7}), 0u) << "a row is missing";
}

}  // namespace
}  // namespace hearth
