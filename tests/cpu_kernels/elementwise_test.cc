// The element-wise operations: the definition against double-precision formulas, and every
// instruction set against the definition, bit for bit.
#include "cpu_kernels/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/row_fixture.h"

namespace hearth {
namespace {

double SigmoidInDouble(double v) { return 1 / (1 + std::exp(-v)); }

// Runs `kernel` of the scalar row and of each supported row on equal inputs; `make` fills the Args,
// whose output is the guarded buffer it is given.
template <class Args, class Member, class Make>
void ExpectSameBits(Member member, const std::vector<float>& initial, Make make) {
  GuardedFloats expected(initial);
  (ScalarRow().*member).fn(make(expected.data()));
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    GuardedFloats actual(initial);
    (row->*member).fn(make(actual.data()));
    EXPECT_TRUE(SameBits(expected, actual));
  }
}

TEST(Elementwise, UnaryKernelsFollowTheirFormulas) {
  Prng prng(1);
  const std::vector<float> x = RandomFloats(prng, 1000, -30, 30);
  const std::vector<float> z = RandomFloats(prng, 1000, -30, 30);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    std::vector<float> y(x.size());
    row->silu.fn({.x = x.data(), .y = y.data(), .count = x.size(), .scale = 0.25f});
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = double{x[i]} * 0.25;
      ASSERT_NEAR(y[i], v * SigmoidInDouble(v), 1e-6 * std::fabs(v));
    }
    row->sigmoid.fn(
        {.x = x.data(), .y = y.data(), .count = x.size(), .x_scale = 0.25f, .scale = 2});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], 2 * SigmoidInDouble(double{x[i]} * 0.25), 1e-6);
    }
    row->swiglu.fn({.gate = z.data(), .up = x.data(), .y = y.data(), .count = x.size()});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], z[i] * SigmoidInDouble(z[i]) * x[i], 1e-6 * std::fabs(x[i] * z[i]));
    }
    for (const bool silu : {false, true}) {
      row->gate.fn({.x = x.data(), .z = z.data(), .y = y.data(), .count = x.size(), .silu = silu});
      for (size_t i = 0; i < x.size(); ++i) {
        const double gate = SigmoidInDouble(z[i]) * (silu ? z[i] : 1);
        ASSERT_NEAR(y[i], x[i] * gate, 1e-6 * std::fabs(x[i]) * (silu ? std::fabs(z[i]) + 1 : 1));
      }
    }
  }
}

TEST(Elementwise, UnaryKernelsHaveTheSameBitsOnEveryInstructionSet) {
  for (const uint32_t count : kOddDims) {
    SCOPED_TRACE(count);
    Prng prng(count);
    std::vector<float> x = RandomFloats(prng, count, -100, 100);
    const std::vector<float> z = RandomFloats(prng, count, -20, 20);
    x[0] = -0.0f;
    ExpectSameBits<SiluArgs>(&CpuKernels::silu, x, [&](float* y) {
      return SiluArgs{.x = y, .y = y, .count = count, .scale = 0.25f};
    });
    ExpectSameBits<SigmoidArgs>(&CpuKernels::sigmoid, x, [&](float* y) {
      return SigmoidArgs{.x = y, .y = y, .count = count, .x_scale = 0.25f, .scale = 2};
    });
    ExpectSameBits<SwigluArgs>(&CpuKernels::swiglu, x, [&](float* y) {
      return SwigluArgs{.gate = z.data(), .up = x.data(), .y = y, .count = count};
    });
    for (const bool silu : {false, true}) {
      ExpectSameBits<GateArgs>(&CpuKernels::gate, x, [&](float* y) {
        return GateArgs{.x = y, .z = z.data(), .y = y, .count = count, .silu = silu};
      });
    }
  }
}

struct Streams {  // the operands of one hyper-connection
  uint32_t rows, streams, hidden;
  std::vector<float> gate, hn, h, y, inject;
};

Streams RandomStreams(uint32_t rows, uint32_t streams, uint32_t hidden) {
  Prng prng(rows * 1000 + hidden);
  const size_t count = size_t{rows} * streams * hidden;
  Streams s{rows, streams, hidden, {}, {}, {}, {}, {}};
  s.gate = RandomFloats(prng, count, -8, 8);
  s.hn = RandomFloats(prng, count);
  s.h = RandomFloats(prng, count);
  s.y = RandomFloats(prng, size_t{rows} * hidden);
  s.inject = RandomFloats(prng, size_t{rows} * streams, 0, 2);
  return s;
}

TEST(Elementwise, StreamMixIsTheMeanOfTheGatedStreams) {
  const Streams s = RandomStreams(3, 4, 40);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    std::vector<float> u(3 * 40);
    row->stream_mix.fn({.gate = s.gate.data(),
                        .hn = s.hn.data(),
                        .u = u.data(),
                        .rows = 3,
                        .streams = 4,
                        .hidden = 40});
    for (uint32_t i = 0; i < 3 * 40; ++i) {
      double mean = 0;
      for (uint32_t k = 0; k < 4; ++k) {
        const size_t at = (i / 40 * 4 + k) * 40 + i % 40;
        mean += SigmoidInDouble(s.gate[at]) * s.hn[at] / 4;
      }
      ASSERT_NEAR(u[i], mean, 1e-6);
    }
  }
}

TEST(Elementwise, StreamAddAddsTheOutputToEveryStreamByItsOwnFactor) {
  const Streams s = RandomStreams(3, 4, 40);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    std::vector<float> h = s.h;
    row->stream_add.fn({.h = h.data(),
                        .y = s.y.data(),
                        .inject = s.inject.data(),
                        .rows = 3,
                        .streams = 4,
                        .hidden = 40});
    for (uint32_t i = 0; i < h.size(); ++i) {
      const uint32_t stream = i / 40;
      const double added = double{s.inject[stream]} * s.y[stream / 4 * 40 + i % 40];
      ASSERT_NEAR(h[i], s.h[i] + added, 1e-6);
    }
  }
}

TEST(Elementwise, StreamKernelsHaveTheSameBitsOnEveryInstructionSet) {
  for (const uint32_t hidden : kOddDims) {
    for (const uint32_t streams : {1u, 3u, 4u}) {
      SCOPED_TRACE(hidden);
      const Streams s = RandomStreams(3, streams, hidden);
      const std::vector<float> u(size_t{3} * hidden);
      ExpectSameBits<StreamMixArgs>(&CpuKernels::stream_mix, u, [&](float* out) {
        return StreamMixArgs{.gate = s.gate.data(),
                             .hn = s.hn.data(),
                             .u = out,
                             .rows = 3,
                             .streams = streams,
                             .hidden = hidden};
      });
      ExpectSameBits<StreamAddArgs>(&CpuKernels::stream_add, s.h, [&](float* h) {
        return StreamAddArgs{.h = h,
                             .y = s.y.data(),
                             .inject = s.inject.data(),
                             .rows = 3,
                             .streams = streams,
                             .hidden = hidden};
      });
    }
  }
}

TEST(Elementwise, CombineAddsRanksInOrderAndThenTheSharedExpert) {
  for (const uint32_t hidden : kOddDims) {
    SCOPED_TRACE(hidden);
    constexpr uint32_t kRows = 2, kRanks = 10;
    Prng prng(hidden);
    const auto expert_y = RandomFloats(prng, size_t{kRows} * kRanks * hidden);
    const auto weight = RandomFloats(prng, kRows * kRanks, 0, 1);
    const auto shared = RandomFloats(prng, size_t{kRows} * hidden);
    const auto shared_gate = RandomFloats(prng, kRows, 0, 1);
    const auto make = [&](float* out) {
      return CombineArgs{.expert_y = expert_y.data(),
                         .weight = weight.data(),
                         .shared = shared.data(),
                         .shared_gate = shared_gate.data(),
                         .out = out,
                         .rows = kRows,
                         .ranks = kRanks,
                         .hidden = hidden};
    };
    std::vector<float> out(size_t{kRows} * hidden);
    ScalarRow().combine.fn(make(out.data()));
    for (uint32_t i = 0; i < out.size(); ++i) {
      const uint32_t t = i / hidden;
      double sum = double{shared_gate[t]} * shared[i];
      for (uint32_t r = 0; r < kRanks; ++r) {
        sum += double{weight[t * kRanks + r]} * expert_y[(t * kRanks + r) * hidden + i % hidden];
      }
      ASSERT_NEAR(out[i], sum, 1e-5);
    }
    ExpectSameBits<CombineArgs>(&CpuKernels::combine, std::vector<float>(out.size()), make);
  }
}

TEST(Elementwise, RotaryTurnsThePairsOfSplitHalvesAndLeavesTheRest) {
  constexpr uint32_t kRows = 3, kHeads = 2;
  for (const uint32_t half : {1u, 7u, 16u, 20u, 32u}) {
    SCOPED_TRACE(half);
    const uint32_t head_stride = 2 * half + 5;
    const uint32_t row_stride = kHeads * head_stride + 3;
    Prng prng(half);
    const auto x = RandomFloats(prng, size_t{kRows} * row_stride);
    std::vector<float> cos(kRows * half), sin(kRows * half);
    for (uint32_t i = 0; i < kRows * half; ++i) {
      const double angle = prng.Uniform() * 6;
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
    const auto make = [&](float* values) {
      return RotaryArgs{.x = values,
                        .row_stride = row_stride,
                        .head_stride = head_stride,
                        .cos = cos.data(),
                        .sin = sin.data(),
                        .rows = kRows,
                        .heads = kHeads,
                        .rotary_dim = 2 * half};
    };
    std::vector<double> expected(x.begin(), x.end());
    for (uint32_t t = 0; t < kRows; ++t) {
      for (uint32_t i = 0; i < kHeads * half; ++i) {
        const size_t a = size_t{t} * row_stride + i / half * head_stride + i % half;
        const double c = cos[t * half + i % half], s = sin[t * half + i % half];
        expected[a] = x[a] * c - x[a + half] * s;
        expected[a + half] = x[a + half] * c + x[a] * s;
      }
    }
    std::vector<float> turned = x;
    ScalarRow().rotary.fn(make(turned.data()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(turned[i], expected[i], 1e-6) << i;
    ExpectSameBits<RotaryArgs>(&CpuKernels::rotary, x, make);
  }
}

TEST(Elementwise, ConvIsCausalAndDilatedAndKeepsToItsChannels) {
  struct Case {
    uint32_t channels, begin, end, taps, dilation;
  };
  for (const Case c : {Case{40, 3, 37, 4, 1},
                       {64, 0, 64, 4, 3},
                       {33, 0, 33, 4, 1},
                       {20, 19, 20, 2, 2},
                       {7, 0, 7, 1, 1},
                       {256, 16, 240, 4, 3}}) {
    SCOPED_TRACE(c.channels);
    constexpr uint32_t kRows = 5;
    const uint32_t x_stride = c.channels + 9, out_stride = c.channels + 4;
    Prng prng(c.channels);
    const auto x = RandomFloats(prng, size_t{kRows + (c.taps - 1) * c.dilation} * x_stride);
    const auto w = RandomFloats(prng, size_t{c.taps} * c.channels);
    const auto make = [&](float* out) {
      return ConvArgs{.x = x.data(),
                      .x_stride = x_stride,
                      .w = w.data(),
                      .w_stride = c.channels,
                      .out = out,
                      .out_stride = out_stride,
                      .rows = kRows,
                      .channel_begin = c.begin,
                      .channel_end = c.end,
                      .taps = c.taps,
                      .dilation = c.dilation};
    };
    GuardedFloats out(size_t{kRows} * out_stride);
    ScalarRow().conv.fn(make(out.data()));
    for (uint32_t t = 0; t < kRows; ++t) {
      for (uint32_t ch = 0; ch < out_stride; ++ch) {
        const float found = out[size_t{t} * out_stride + ch];
        if (ch < c.begin || ch >= c.end) {
          ASSERT_TRUE(GuardedFloats::IsPattern(found)) << "wrote channel " << ch;
          continue;
        }
        double sum = 0;
        for (uint32_t j = 0; j < c.taps; ++j) {
          sum += double{w[j * c.channels + ch]} * x[(t + j * c.dilation) * x_stride + ch];
        }
        ASSERT_NEAR(found, sum, 1e-5);
      }
    }
    ExpectSameBits<ConvArgs>(&CpuKernels::conv, std::vector<float>(out.inside().size(), 5.0f),
                             make);
  }
}

TEST(Elementwise, ConvWithoutAWeightStrideTakesThatOfX) {
  const std::vector<float> x = {1, 2, 3, 4};  // (2, 2): one output row, two taps
  const std::vector<float> w = {10, 20, 30, 40};
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    float out[2] = {};
    row->conv.fn({.x = x.data(),
                  .x_stride = 2,
                  .w = w.data(),
                  .out = out,
                  .out_stride = 2,
                  .rows = 1,
                  .channel_begin = 0,
                  .channel_end = 2,
                  .taps = 2});
    EXPECT_EQ(out[0], 1 * 10 + 3 * 30);
    EXPECT_EQ(out[1], 2 * 20 + 4 * 40);
  }
}

}  // namespace
}  // namespace hearth
