// Images of sequences on a card, in both formats of keys and values; what a copy takes.
#include "runtime/backend/cuda/cuda_imager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "pack/synth/synthetic_geometry.h"
#include "runtime/backend/cuda/cuda_sequence.h"
#include "runtime/base/file.h"
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

// A sequence of the full model without the model: what its copies take.
TEST_F(CudaImagerTest, CopiesOfTheFullModelsState) {
  const ModelGeometry geometry = NamedGeometry(SyntheticModel::kFlashNext);
  SteadyClock clock;
  constexpr uint32_t kTokens = 2048;
  const SequenceShape shape{.context_tokens_max = kTokens,
                            .window_rows_max = 9,
                            .rows_max = 512,
                            .ring_rows = RingRows(geometry, {.prompt_rows_max = 512}),
                            .kv_format = KvFormat::kBf16};
  const auto make = [&] {
    MemoryLayout layout;
    SequenceState state;
    ReserveSequenceState(layout, state, geometry, shape);
    absl::StatusOr<DeviceBuffer> memory = DeviceBuffer::Create(gpu().id, layout.bytes());
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(FillBytes(*memory, std::byte{1}, stream().view()).ok());
    layout.Place(memory->data());
    return std::make_unique<CudaSequence>(shape, *std::move(memory), std::move(state));
  };
  const auto sequence = make();
  const std::vector<TokenId> tokens(kTokens, 1);
  sequence->rows().Restore(tokens, kTokens - 1);
  auto imager =
      CudaImager::Create({geometry, clock, stream().view(), KvFormat::kBf16, 1'000'000'000});
  ASSERT_TRUE(imager.ok()) << imager.status();
  const SpanRange range{.end = kTokens, .draft_end = kTokens - 1};
  const auto memory = [](uint64_t bytes) { return *AnonymousMapping::Create(bytes); };
  for (int round = 0; round < 3; ++round) {  // the first pays for the pages
    const AnonymousMapping fixed = memory((*imager)->fixed_bytes());
    const AnonymousMapping span = memory((*imager)->span_bytes(range));
    const int64_t begin_ns = clock.NowNs();
    ASSERT_TRUE((*imager)->SaveImage(*sequence, {}, fixed.data(), {}).ok());
    const int64_t span_ns = clock.NowNs();
    ASSERT_TRUE((*imager)->SaveImage(*sequence, range, {}, span.data()).ok());
    const int64_t restore_ns = clock.NowNs();
    const SpanView view{.range = range, .bytes = span.data()};
    const auto target = make();
    const int64_t made_ns = clock.NowNs();
    ASSERT_TRUE((*imager)
                    ->RestoreImage({.tokens = tokens,
                                    .draft_count = kTokens - 1,
                                    .fixed = fixed.data(),
                                    .spans = {&view, 1}},
                                   *target)
                    .ok());
    const int64_t end_ns = clock.NowNs();
    std::printf(
        "full model: fixed %zu B saved in %.2f ms, span %zu B in %.2f ms, both restored in "
        "%.2f ms\n",
        fixed.data().size(), 1e-6 * static_cast<double>(span_ns - begin_ns), span.data().size(),
        1e-6 * static_cast<double>(restore_ns - span_ns),
        1e-6 * static_cast<double>(end_ns - made_ns));
  }
}

}  // namespace
}  // namespace hearth
