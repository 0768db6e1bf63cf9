// Images of sequences on a card, in both formats of keys and values; what a copy takes.
#include "runtime/backend/cuda/cuda_imager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/backend/cuda/cuda_sequence.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/support/golden_file.h"
#include "tests/support/image_checks.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

class CudaImagerTest : public OnGpu {
 protected:
  static void TearDownTestSuite() { pack_.reset(); }
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (pack_ == nullptr) {
      pack_ =
          std::make_unique<TemporaryPack>(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8);
    }
    const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
    const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
    tokens_.assign(ids.begin(), ids.begin() + 440);
  }
  RunnerOptions Options(KvFormat kv_format, uint32_t prompt_rows_max) {
    RunnerOptions options;
    options.gpu = gpu();
    options.kv_format = kv_format;
    options.limits.prompt_rows_max = prompt_rows_max;
    options.planned_context_tokens = 512;
    return options;
  }

  static std::unique_ptr<TemporaryPack> pack_;
  std::vector<TokenId> tokens_;
};
std::unique_ptr<TemporaryPack> CudaImagerTest::pack_;

TEST_F(CudaImagerTest, RestoredSequencesGoOnAsTheOneThatReadAll) {
  for (const KvFormat kv_format : {KvFormat::kBf16, KvFormat::kInt8}) {
    LoadedRunner runner(pack_->dir(), {.options = Options(kv_format, 128)});
    // Longer and shorter than a ring, within the first rows, blocks begun and complete.
    for (const std::vector<uint32_t>& cuts :
         std::vector<std::vector<uint32_t>>{{128, 256, 300, 410}, {1, 3, 8, 20, 100}}) {
      for (const bool drafts : {true, false}) {
        ImageChecks(*runner, tokens_, cuts, drafts).RestoredSequencesGoOnAsTheOneThatReadAll();
      }
    }
  }
}

TEST_F(CudaImagerTest, WhatDoesNotFitIsRefused) {
  LoadedRunner runner(pack_->dir(), {.options = Options(KvFormat::kBf16, 128)});
  ImageChecks(*runner, tokens_, {21}, true).WhatDoesNotFitIsRefused();
}

TEST_F(CudaImagerTest, CopyTakesLessThanReading) {
  LoadedRunner runner(pack_->dir(), {.options = Options(KvFormat::kBf16, 256)});
  SequenceImager& imager = runner->imager();
  SteadyClock clock;
  FollowedSequence whole(*runner, 512, false);
  const int64_t read_ns = clock.NowNs();
  whole.Read(tokens_, 256, 256, Phase::kPrompt);
  const int64_t save_ns = clock.NowNs();
  const SpanRange range{.end = 256};
  std::vector<std::byte> fixed(imager.fixed_bytes()), span(imager.span_bytes(range));
  ASSERT_TRUE(imager.SaveImage(*whole, range, fixed, span).ok());
  const int64_t restore_ns = clock.NowNs();
  FollowedSequence restored(*runner, 512, false);
  const SpanView view{.range = range, .bytes = span};
  ASSERT_TRUE(
      imager
          .RestoreImage(
              {.tokens = std::span(tokens_).first(256), .fixed = fixed, .spans = {&view, 1}},
              *restored)
          .ok());
  const int64_t end_ns = clock.NowNs();
  std::printf(
      "256 tokens: read with logits %.2f ms, saved %.2f ms, restored %.2f ms (%zu + %zu B)\n",
      1e-6 * static_cast<double>(save_ns - read_ns),
      1e-6 * static_cast<double>(restore_ns - save_ns),
      1e-6 * static_cast<double>(end_ns - restore_ns), fixed.size(), span.size());
}

}  // namespace
}  // namespace hearth
