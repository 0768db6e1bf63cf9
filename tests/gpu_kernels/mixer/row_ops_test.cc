// The GPU's operations along rows against their scalar twins: steps and mixes of the residual
// streams, activations, the combination of experts, the router's choice, rotary tables.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/rotary.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/backend/cpu/pass.h"
#include "runtime/backend/cpu/route_weights.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/mixer/pass_fixture.h"

namespace hearth {
namespace {

class RowOps : public OnGpu {};

struct StreamShape {
  uint32_t streams;
  uint32_t hidden;
};
constexpr StreamShape kShapes[] = {{4, 64}, {4, 256}, {2, 96}, {4, 2560}, {1, 10240}, {3, 4128}};
constexpr uint32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 37};
constexpr float kEpsilon = 1e-6f;

// Everything that a step may read, for `rows` rows; row t is the same for every row count.
struct StepInputs {
  std::vector<float> h, y, inject, norm, expert_y, weight, shared, shared_gate;
  std::vector<uint8_t> on_card;
};

constexpr uint32_t kRanks = 10;

StepInputs InputsOf(StreamShape shape, uint32_t rows) {
  StepInputs in;
  Prng weights(11);
  const uint32_t width = shape.streams * shape.hidden;
  in.norm = RandomFloats(&weights, width, 0.5f);
  for (uint32_t t = 0; t < rows; ++t) {
    Prng prng(100 + t);
    const auto append = [&prng](std::vector<float>* to, size_t count, float magnitude) {
      const std::vector<float> values = RandomFloats(&prng, count, magnitude);
      to->insert(to->end(), values.begin(), values.end());
    };
    append(&in.h, width, t % 3 == 2 ? 1e-3f : 3.0f);
    append(&in.y, shape.hidden, 1);
    append(&in.inject, shape.streams, 2);
    append(&in.expert_y, size_t{kRanks} * (shape.hidden + 4), 1);
    append(&in.weight, kRanks, 1);
    append(&in.shared, shape.hidden, 1);
    append(&in.shared_gate, 1, 1);
    for (uint32_t r = 0; r < kRanks; ++r) in.on_card.push_back(prng.Below(2) != 0 ? 7 : 0);
  }
  return in;
}

// y of a step whose write is `write`, by the scalar kernels.
std::vector<float> WrittenRows(const StepInputs& in, StreamWrite write, StreamShape shape,
                               uint32_t rows) {
  if (write != StreamWrite::kCombine) return in.y;
  std::vector<float> dense;
  for (size_t entry = 0; entry < size_t{rows} * kRanks; ++entry) {
    const auto first = in.expert_y.begin() + static_cast<ptrdiff_t>(entry * (shape.hidden + 4));
    dense.insert(dense.end(), first, first + shape.hidden);
  }
  std::vector<float> y(size_t{rows} * shape.hidden);
  ScalarKernels().combine.fn({.expert_y = dense.data(),
                              .weight = in.weight.data(),
                              .shared = in.shared.data(),
                              .shared_gate = in.shared_gate.data(),
                              .out = y.data(),
                              .rows = rows,
                              .ranks = kRanks,
                              .hidden = shape.hidden});
  return y;
}

// h and hn of a step, by the scalar kernels.
std::pair<std::vector<float>, std::vector<float>> StepOfCpu(const StepInputs& in, StreamWrite write,
                                                            StreamShape shape, uint32_t rows) {
  std::vector<float> h = in.h;
  const std::vector<float> y = WrittenRows(in, write, shape, rows);
  const uint32_t width = shape.streams * shape.hidden;
  if (write == StreamWrite::kBroadcast) {
    for (size_t i = 0; i < h.size(); ++i) {
      h[i] = y[i / width * shape.hidden + i % shape.hidden];
    }
  } else if (write != StreamWrite::kNone) {
    ScalarKernels().stream_add.fn({.h = h.data(),
                                   .y = y.data(),
                                   .inject = in.inject.data(),
                                   .rows = rows,
                                   .streams = shape.streams,
                                   .hidden = shape.hidden});
  }
  std::vector<float> hn(h.size());
  ScalarKernels().rms_norm.fn({.x = h.data(),
                               .x_stride = width,
                               .y = hn.data(),
                               .y_stride = width,
                               .w = in.norm.data(),
                               .w_count = width,
                               .weight = NormWeight::kOnePlus,
                               .rows = rows,
                               .cols = width,
                               .group = shape.hidden,
                               .epsilon = kEpsilon});
  return {h, hn};
}

// The inputs of a step on the device, and its outputs.
struct StepOnGpu {
  DeviceArray<float> h, y, inject, norm, device_y, host_y, weight, shared, shared_gate, hn;
  DeviceArray<uint8_t> on_card;
  DeviceQuantized quantized;
  GpuStreamStepArgs args;

  StepOnGpu(const UniqueStream& s, const StepInputs& in, StreamWrite write, StreamShape shape,
            uint32_t rows)
      : h(s, in.h),
        y(s, in.y),
        inject(s, in.inject),
        norm(s, in.norm),
        device_y(s, Part(in, shape, false)),
        host_y(s, Part(in, shape, true)),
        weight(s, in.weight),
        shared(s, in.shared),
        shared_gate(s, in.shared_gate),
        hn(s, in.h.size()),
        on_card(s, in.on_card),
        quantized(s, rows, shape.streams * shape.hidden),
        args{.write = write,
             .h = h.data(),
             .y = y.data(),
             .combine = {.device_y = device_y.data(),
                         .host_y = host_y.data(),
                         .on_card = on_card.data(),
                         .y_stride = shape.hidden + 4,
                         .weight = weight.data(),
                         .shared = shared.data(),
                         .shared_gate = shared_gate.data(),
                         .ranks = kRanks},
             .inject = inject.data(),
             .norm = norm.data(),
             .epsilon = kEpsilon,
             .hn = hn.data(),
             .hn_quantized = quantized.out(),
             .rows = rows,
             .streams = shape.streams,
             .hidden = shape.hidden} {}

  // Only the entries that lie there; the others are NaNs.
  static std::vector<float> Part(const StepInputs& in, StreamShape shape, bool host) {
    std::vector<float> part = in.expert_y;
    for (size_t i = 0; i < part.size(); ++i) {
      if ((in.on_card[i / (shape.hidden + 4)] == 0) != host) {
        part[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    return part;
  }
};

TEST_F(RowOps, StreamStepWritesNormalisesAndQuantises) {
  for (const StreamShape& shape : kShapes) {
    for (const StreamWrite write :
         {StreamWrite::kNone, StreamWrite::kBroadcast, StreamWrite::kAdd, StreamWrite::kCombine}) {
      std::vector<float> first_rows;
      for (const uint32_t rows : kRowCounts) {
        const StepInputs in = InputsOf(shape, rows);
        StepOnGpu run(stream(), in, write, shape, rows);
        const absl::Status status = LaunchStreamStep(run.args, stream().view());
        ASSERT_TRUE(status.ok()) << status;
        const auto [h, hn] = StepOfCpu(in, write, shape, rows);
        EXPECT_EQ(run.h.Read(), h);  // the write rounds as the CPU does
        const std::vector<float> actual = run.hn.Read();
        ExpectClose(hn, actual, "hn");
        run.quantized.ExpectFormOf(actual);
        const std::span<const float> first(actual.data(), size_t{shape.streams} * shape.hidden);
        if (first_rows.empty()) first_rows.assign(first.begin(), first.end());
        EXPECT_TRUE(SameBits(first_rows, first)) << "row 0 among " << rows;
        if (HasFailure()) {
          FAIL() << "hidden " << shape.hidden << " rows " << rows << " write "
                 << static_cast<int>(write);
        }
      }
    }
  }
}

TEST_F(RowOps, StepsWithoutReadAndPlainSums) {
  const StreamShape shape = {4, 256};
  const StepInputs in = InputsOf(shape, 3);
  StepOnGpu run(stream(), in, StreamWrite::kAdd, shape, 3);
  run.args.norm = nullptr;
  run.args.inject = nullptr;
  ASSERT_TRUE(LaunchStreamStep(run.args, stream().view()).ok());
  std::vector<float> h = in.h;
  for (size_t i = 0; i < h.size(); ++i) h[i] += in.y[i / 1024 * 256 + i % 256];
  EXPECT_EQ(run.h.Read(), h);
  EXPECT_NE(run.hn.Read()[5], run.hn.Read()[5]);  // not written
}

TEST_F(RowOps, CombineAloneHasTheBitsOfTheCpu) {
  for (const StreamShape& shape : kShapes) {
    for (const uint32_t rows : {1u, 4u, 9u}) {
      const StepInputs in = InputsOf(shape, rows);
      StepOnGpu run(stream(), in, StreamWrite::kCombine, shape, rows);
      DeviceArray<float> out(stream(), size_t{rows} * shape.hidden);
      ASSERT_TRUE(
          LaunchCombine(
              {.from = run.args.combine, .out = out.data(), .rows = rows, .hidden = shape.hidden},
              stream().view())
              .ok());
      EXPECT_EQ(out.Read(), WrittenRows(in, StreamWrite::kCombine, shape, rows));
    }
  }
}

TEST_F(RowOps, StreamMixHasTheBitsOfTheCpu) {
  Prng prng(21);
  for (const StreamShape& shape : kShapes) {
    for (const uint32_t rows : kRowCounts) {
      const size_t width = size_t{shape.streams} * shape.hidden;
      const std::vector<float> gate = RandomFloats(&prng, rows * width, 8);
      const std::vector<float> hn = RandomFloats(&prng, rows * width, 2);
      std::vector<float> u(size_t{rows} * shape.hidden);
      ScalarKernels().stream_mix.fn({.gate = gate.data(),
                                     .hn = hn.data(),
                                     .u = u.data(),
                                     .rows = rows,
                                     .streams = shape.streams,
                                     .hidden = shape.hidden});
      const DeviceArray<float> device_gate(stream(), gate);
      const DeviceArray<float> device_hn(stream(), hn);
      const DeviceArray<float> device_u(stream(), u.size());
      const DeviceQuantized quantized(stream(), rows, shape.hidden);
      const absl::Status status = LaunchStreamMix({.gate = device_gate.data(),
                                                   .hn = device_hn.data(),
                                                   .u = device_u.data(),
                                                   .u_quantized = quantized.out(),
                                                   .rows = rows,
                                                   .streams = shape.streams,
                                                   .hidden = shape.hidden},
                                                  stream().view());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(device_u.Read(), u);
      quantized.ExpectFormOf(u);
      ASSERT_FALSE(HasFailure()) << "hidden " << shape.hidden << " rows " << rows;
    }
  }
}

TEST_F(RowOps, ActivationsHaveTheBitsOfTheCpuAndFillTheLastBlock) {
  Prng prng(31);
  for (const uint32_t cols : {4u, 32u, 36u, 320u, 640u, 100u, 2560u}) {
    for (const uint32_t rows : {1u, 3u, 9u}) {
      const uint32_t stride = cols + 8;
      const std::vector<float> x = RandomFloats(&prng, size_t{rows} * stride, 20);
      const std::vector<float> up = RandomFloats(&prng, size_t{rows} * stride, 2);
      const DeviceArray<float> device_x(stream(), x);
      const DeviceArray<float> device_up(stream(), up);
      for (const RowFunction function :
           {RowFunction::kNone, RowFunction::kSilu, RowFunction::kSwiglu}) {
        std::vector<float> expected(size_t{rows} * cols);
        for (uint32_t t = 0; t < rows; ++t) {
          float* y = &expected[size_t{t} * cols];
          const float* from = &x[size_t{t} * stride];
          if (function == RowFunction::kNone) std::copy_n(from, cols, y);
          if (function == RowFunction::kSilu) {
            ScalarKernels().silu.fn({.x = from, .y = y, .count = cols, .scale = 0.25f});
          }
          if (function == RowFunction::kSwiglu) {
            ScalarKernels().swiglu.fn(
                {.gate = from, .up = &up[size_t{t} * stride], .y = y, .count = cols});
          }
        }
        const DeviceArray<float> y(stream(), expected.size());
        const DeviceQuantized quantized(stream(), rows, cols);
        const absl::Status status = LaunchActivateQuantize({.function = function,
                                                            .x = device_x.data(),
                                                            .up = device_up.data(),
                                                            .x_stride = stride,
                                                            .scale = 0.25f,
                                                            .y = y.data(),
                                                            .quantized = quantized.out(),
                                                            .rows = rows,
                                                            .cols = cols},
                                                           stream().view());
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(y.Read(), expected);
        quantized.ExpectFormOf(expected);
        ASSERT_FALSE(HasFailure()) << "cols " << cols << " rows " << rows;
      }
    }
  }
}

struct Choice {
  std::vector<uint32_t> expert;
  std::vector<float> weight;
};

Choice ChoiceOfCpu(const std::vector<float>& logits, uint32_t rows, uint32_t count, uint32_t ranks,
                   bool renormalise) {
  Choice c;
  c.expert.resize(size_t{rows} * ranks);
  c.weight.resize(c.expert.size());
  std::vector<uint64_t> scratch(std::max(count, 64u));
  MoeGeometry moe;
  moe.renormalise = renormalise;
  for (uint32_t t = 0; t < rows; ++t) {
    EXPECT_TRUE(ScalarKernels().top_k.fn({.values = &logits[size_t{t} * count],
                                          .count = count,
                                          .k = ranks,
                                          .index = &c.expert[size_t{t} * ranks],
                                          .scratch = scratch.data()}));
    RouteWeights(moe, std::span(logits).subspan(size_t{t} * count, count),
                 std::span(c.expert).subspan(size_t{t} * ranks, ranks),
                 std::span(c.weight).subspan(size_t{t} * ranks, ranks));
  }
  return c;
}

TEST_F(RowOps, RouterChoosesAsTheCpuWithTies) {
  Prng prng(41);
  struct Shape {
    uint32_t count, ranks;
  };
  for (const Shape& shape : {Shape{512, 10}, Shape{64, 6}, Shape{32, 4}, Shape{512, 32},
                             Shape{1000, 8}, Shape{7, 7}, Shape{1, 1}, Shape{130, 1}}) {
    for (const bool renormalise : {true, false}) {
      for (const int kind : {0, 1, 2}) {  // all different; many ties; only zeros of both signs
        const uint32_t rows = kind == 0 ? 9 : 5;
        std::vector<float> logits(size_t{rows} * shape.count);
        for (float& v : logits) {
          v = kind == 0   ? RandomFloat(&prng, 6)
              : kind == 1 ? static_cast<float>(prng.Below(4)) - 2
                          : (prng.Below(2) != 0 ? 0.0f : -0.0f);
        }
        const Choice expected = ChoiceOfCpu(logits, rows, shape.count, shape.ranks, renormalise);
        const DeviceArray<float> device(stream(), logits);
        const DeviceArray<uint32_t> expert(stream(), expected.expert.size());
        const DeviceArray<float> weight(stream(), expected.weight.size());
        const DeviceArray<uint32_t> flag(stream(), std::vector<uint32_t>{0});
        const absl::Status status = LaunchRouter({.logits = device.data(),
                                                  .expert = expert.data(),
                                                  .weight = weight.data(),
                                                  .nan_flag = flag.data(),
                                                  .rows = rows,
                                                  .expert_count = shape.count,
                                                  .ranks = shape.ranks,
                                                  .renormalise = renormalise},
                                                 stream().view());
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(expert.Read(), expected.expert);
        ExpectClose(expected.weight, weight.Read(), "weights");
        EXPECT_EQ(flag.Read()[0], 0u);
        ASSERT_FALSE(HasFailure()) << shape.count << " experts, kind " << kind;
      }
    }
  }
}

TEST_F(RowOps, RouterReportsANanAndStaysInRange) {
  Prng prng(42);
  for (const uint32_t at : {0u, 511u, 512u + 77u}) {
    std::vector<float> logits = RandomFloats(&prng, 1024, 3);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> device(stream(), logits);
    const DeviceArray<uint32_t> expert(stream(), 20);
    const DeviceArray<uint32_t> flag(stream(), std::vector<uint32_t>{0});
    ASSERT_TRUE(LaunchRouter({.logits = device.data(),
                              .expert = expert.data(),
                              .nan_flag = flag.data(),
                              .rows = 2,
                              .expert_count = 512,
                              .ranks = 10},
                             stream().view())
                    .ok());
    EXPECT_EQ(flag.Read()[0], 1u);
    for (const uint32_t e : expert.Read()) EXPECT_LT(e, 512u);
  }
}

TEST_F(RowOps, RotaryTablesAreThoseOfTheCpu) {
  for (const uint32_t rotary_dim : {8u, 16u, 64u, 256u}) {
    std::vector<GpuSegment> segments(3);
    segments[0] = {.rows = 1, .base = 0};
    segments[1] = {.rows = 5, .base = 4094};
    segments[2] = {.rows = 3, .base = 262'000};
    const DevicePass pass(stream(), segments, 9, 32);
    const size_t count = size_t{pass.rows()} * rotary_dim / 2;
    const DeviceArray<float> cos(stream(), count);
    const DeviceArray<float> sin(stream(), count);
    const DeviceArray<float> block_cos(stream(), count);
    const DeviceArray<float> block_sin(stream(), count);
    const absl::Status status = LaunchRotaryTable({.pass = pass.table(),
                                                   .cos = cos.data(),
                                                   .sin = sin.data(),
                                                   .block_cos = block_cos.data(),
                                                   .block_sin = block_sin.data(),
                                                   .theta = 1e7,
                                                   .rotary_dim = rotary_dim,
                                                   .block_tokens = 4},
                                                  stream().view());
    ASSERT_TRUE(status.ok()) << status;
    std::vector<std::vector<float>> expected(4, std::vector<float>(count));
    for (const GpuSegment& s : pass.segments()) {
      for (uint32_t i = 0; i < s.rows; ++i) {
        const size_t at = size_t{s.row_begin + i} * rotary_dim / 2;
        const auto row = [&](int k) { return std::span(expected[k]).subspan(at, rotary_dim / 2); };
        RotaryTable(1e7, rotary_dim, s.base + i, row(0), row(1));
        RotaryTable(1e7, rotary_dim, (s.base + i) / 4 * 4, row(2), row(3));
      }
    }
    ExpectClose(expected[0], cos.Read(), "cos", 1e-6);
    ExpectClose(expected[1], sin.Read(), "sin", 1e-6);
    ExpectClose(expected[2], block_cos.Read(), "cos of blocks", 1e-6);
    ExpectClose(expected[3], block_sin.Read(), "sin of blocks", 1e-6);
  }
}

}  // namespace
}  // namespace hearth
