// Shapes that the mixer's operations take and refuse; runs without a GPU.
#include "gpu_kernels/ops/mixer/shape_checks.h"

#include "gtest/gtest.h"

namespace hearth {
namespace {

// Any address will do: nothing is read.
alignas(16) float anything[4];
uint32_t words[4];

GpuPassTable Pass() {
  return {.segments = reinterpret_cast<const GpuSegment*>(words),
          .row_segment = words,
          .segment_count = words,
          .rows = 3,
          .window_rows_max = 9,
          .ring_rows = 32};
}

constexpr GpuGdnShape kShape = {16, 48, 128, 128, 4};

GpuStreamStepArgs Step() {
  return {.h = anything,
          .y = anything,
          .norm = anything,
          .hn = anything,
          .rows = 2,
          .streams = 4,
          .hidden = 2560};
}

TEST(ShapeChecks, StreamSteps) {
  EXPECT_TRUE(CheckStreamStep(Step()).ok());
  GpuStreamStepArgs args = Step();
  args.hidden = 2564;  // a quantised block would lie across two streams
  EXPECT_EQ(CheckStreamStep(args).code(), absl::StatusCode::kInvalidArgument);
  args = Step();
  args.hidden = kStreamGroupMax + 32;
  EXPECT_FALSE(CheckStreamStep(args).ok());
  args = Step();
  args.rows = 0;
  EXPECT_FALSE(CheckStreamStep(args).ok());
  args = Step();
  args.norm = nullptr;  // no write either
  EXPECT_FALSE(CheckStreamStep(args).ok());
  args.write = StreamWrite::kAdd;
  EXPECT_TRUE(CheckStreamStep(args).ok());
  args.write = StreamWrite::kCombine;
  EXPECT_FALSE(CheckStreamStep(args).ok());
  args.combine = {.device_y = anything, .y_stride = 2560, .weight = anything, .ranks = 10};
  EXPECT_TRUE(CheckStreamStep(args).ok());
  args.combine.on_card = reinterpret_cast<const uint8_t*>(words);
  EXPECT_FALSE(CheckStreamStep(args).ok());  // says so, but has no host_y
  args.combine.on_card = nullptr;
  args.combine.ranks = kCombineRanksMax + 1;
  EXPECT_FALSE(CheckStreamStep(args).ok());
}

TEST(ShapeChecks, RowOperations) {
  EXPECT_TRUE(
      CheckStreamMix(
          {.gate = anything, .hn = anything, .u = anything, .rows = 1, .streams = 4, .hidden = 64})
          .ok());
  EXPECT_FALSE(CheckStreamMix({.gate = anything, .hn = anything, .u = anything, .rows = 1}).ok());
  EXPECT_TRUE(CheckActivateQuantize({.x = anything, .x_stride = 320, .rows = 1, .cols = 320}).ok());
  EXPECT_FALSE(
      CheckActivateQuantize({.x = anything, .x_stride = 316, .rows = 1, .cols = 320}).ok());
  EXPECT_FALSE(CheckActivateQuantize({.function = RowFunction::kSwiglu,
                                      .x = anything,
                                      .x_stride = 320,
                                      .rows = 1,
                                      .cols = 320})
                   .ok());
  GpuRouterArgs router = {.logits = anything,
                          .expert = words,
                          .nan_flag = words,
                          .rows = 1,
                          .expert_count = 512,
                          .ranks = 10};
  EXPECT_TRUE(CheckRouter(router).ok());
  router.ranks = 33;
  EXPECT_FALSE(CheckRouter(router).ok());
  router.ranks = 8;
  router.expert_count = 7;
  EXPECT_FALSE(CheckRouter(router).ok());
  router.expert_count = kRouterExpertsMax + 1;
  EXPECT_FALSE(CheckRouter(router).ok());
  GpuCombineArgs combine = {
      .from = {.device_y = anything, .y_stride = 64, .weight = anything, .ranks = 2},
      .out = anything,
      .rows = 1,
      .hidden = 64};
  EXPECT_TRUE(CheckCombine(combine).ok());
  combine.from.shared = anything;
  EXPECT_FALSE(CheckCombine(combine).ok());  // without its gate
}

TEST(ShapeChecks, PassesNeedRingsThatHoldHistoryAndWindow) {
  GpuRotaryTableArgs rotary = {
      .pass = Pass(), .cos = anything, .sin = anything, .theta = 1e7, .rotary_dim = 64};
  EXPECT_TRUE(CheckRotaryTable(rotary).ok());
  rotary.rotary_dim = 63;
  EXPECT_FALSE(CheckRotaryTable(rotary).ok());
  GpuNgramArgs ngram = {.pass = Pass(), .streams = 4, .hidden = 2560, .taps = 4, .dilation = 3};
  EXPECT_TRUE(CheckNgram(ngram).ok());
  ngram.pass.ring_rows = 16;  // 9 of history and 9 of a window
  EXPECT_FALSE(CheckNgram(ngram).ok());
  ngram.pass.ring_rows = 33;
  EXPECT_FALSE(CheckNgram(ngram).ok());
}

TEST(ShapeChecks, DeltaRule) {
  const GpuGdnInputs in = {anything, anything, anything, anything, anything, anything};
  GpuGdnConvolveArgs convolve = {.pass = Pass(),
                                 .shape = kShape,
                                 .in = in,
                                 .qkv = anything,
                                 .log_decay = anything,
                                 .beta = anything};
  EXPECT_TRUE(CheckGdnConvolve(convolve).ok());
  convolve.in.projected = nullptr;
  EXPECT_FALSE(CheckGdnConvolve(convolve).ok());
  GpuGdnWindowArgs window = {
      .pass = Pass(), .shape = kShape, .in = in, .output = {.z = anything, .norm = anything}};
  EXPECT_TRUE(CheckGdnWindow(window).ok());
  window.pass.window_rows_max = kGdnWindowRowsMax + 1;
  EXPECT_FALSE(CheckGdnWindow(window).ok());
  window.pass = Pass();
  for (const GpuGdnShape& shape :
       {GpuGdnShape{16, 48, 48, 128, 4}, GpuGdnShape{16, 48, 128, 96, 4},
        GpuGdnShape{16, 47, 128, 128, 4}, GpuGdnShape{16, 48, 128, 128, 9},
        GpuGdnShape{16, 48, 128, 16, 4}}) {
    window.shape = shape;
    EXPECT_FALSE(CheckGdnWindow(window).ok());
  }
  GpuGdnPromptArgs prompt = {.pass = Pass(),
                             .shape = kShape,
                             .qkv = anything,
                             .log_decay = anything,
                             .beta = anything,
                             .scratch = anything,
                             .output = {.z = anything, .norm = anything, .mixed = anything}};
  EXPECT_TRUE(CheckGdnPrompt(prompt).ok());
  prompt.output.mixed = nullptr;
  EXPECT_FALSE(CheckGdnPrompt(prompt).ok());
  EXPECT_TRUE(CheckGdnFlush({.pass = Pass(), .layer_count = 48, .shape = kShape}).ok());
  EXPECT_FALSE(
      CheckGdnFlush({.pass = Pass(), .segment = 16, .layer_count = 48, .shape = kShape}).ok());
}

}  // namespace
}  // namespace hearth
