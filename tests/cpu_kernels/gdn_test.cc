// The gated delta rule: both forms against a double-precision recurrence, and every instruction set
// against the definition, bit for bit.
#include "cpu_kernels/ops/gdn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/row_fixture.h"

namespace hearth {
namespace {

struct GdnShape {
  uint32_t rows, key_dim, value_dim;
};

// How decays and betas are drawn.
enum class Gates {
  kMixed,
  kDecayNearOne,
  kDecayNearZero,
  kBetaNearZero,
  kBetaNearOne,
  kDecayJumps
};

struct GdnCase {
  GdnShape shape;
  uint32_t qkv_stride, gate_stride, out_stride;
  std::vector<float> qkv;  // per row: query, key, value, then a gap
  std::vector<float> log_decay, decay, beta;
  std::vector<float> state;

  const float* q() const { return qkv.data(); }
  const float* k() const { return qkv.data() + shape.key_dim; }
  const float* v() const { return qkv.data() + 2 * shape.key_dim; }
};

void Normalise(float* x, uint32_t dim, double scale) {
  double squares = 1e-6;
  for (uint32_t i = 0; i < dim; ++i) squares += double{x[i]} * x[i];
  for (uint32_t i = 0; i < dim; ++i) x[i] = static_cast<float>(x[i] / std::sqrt(squares) * scale);
}

float DrawLogDecay(Prng& prng, Gates gates, uint32_t t) {
  switch (gates) {
    case Gates::kDecayNearOne:
      return RandomFloat(prng, -1e-4f, 0);
    case Gates::kDecayNearZero:
      return RandomFloat(prng, -30, -8);
    case Gates::kDecayJumps:  // nearly 1 with sudden forgetting: cancels in a difference of prefix
                              // sums
      return t % 9 == 4 ? RandomFloat(prng, -300, -20) : RandomFloat(prng, -0.01f, 0);
    default:
      return RandomFloat(prng, -1, 0);
  }
}

float DrawBeta(Prng& prng, Gates gates) {
  if (gates == Gates::kBetaNearZero) return RandomFloat(prng, 0, 1e-3f);
  if (gates == Gates::kBetaNearOne) return RandomFloat(prng, 0.999f, 1);
  return RandomFloat(prng, 0, 1);
}

GdnCase RandomCase(GdnShape shape, Gates gates, uint64_t seed) {
  Prng prng(seed);
  GdnCase c;
  c.shape = shape;
  c.qkv_stride = 2 * shape.key_dim + shape.value_dim + 3;
  c.gate_stride = 5;
  c.out_stride = shape.value_dim + 2;
  c.qkv = RandomFloats(prng, size_t{shape.rows} * c.qkv_stride, -1, 1);
  c.log_decay.assign(size_t{shape.rows} * c.gate_stride, 0);
  c.decay = c.beta = c.log_decay;
  for (uint32_t t = 0; t < shape.rows; ++t) {
    float* row = c.qkv.data() + size_t{t} * c.qkv_stride;
    Normalise(row, shape.key_dim, 1 / std::sqrt(static_cast<double>(shape.key_dim)));
    Normalise(row + shape.key_dim, shape.key_dim, 1);
    c.log_decay[t * c.gate_stride] = DrawLogDecay(prng, gates, t);
    c.decay[t * c.gate_stride] = std::exp(c.log_decay[t * c.gate_stride]);
    c.beta[t * c.gate_stride] = DrawBeta(prng, gates);
  }
  c.state = RandomFloats(prng, size_t{shape.key_dim} * shape.value_dim, -1, 1);
  return c;
}

struct Truth {
  std::vector<double> out, state;
};

// MODEL.md 2.3, recurrent form.
Truth RunInDouble(const GdnCase& c) {
  const auto [rows, key_dim, value_dim] = c.shape;
  Truth truth;
  truth.state.assign(c.state.begin(), c.state.end());
  truth.out.assign(size_t{rows} * value_dim, 0);
  for (uint32_t t = 0; t < rows; ++t) {
    const float* q = c.q() + size_t{t} * c.qkv_stride;
    const float* k = c.k() + size_t{t} * c.qkv_stride;
    const double decay = std::exp(double{c.log_decay[t * c.gate_stride]});
    for (uint32_t v = 0; v < value_dim; ++v) {
      double read = 0, out = 0;
      for (uint32_t i = 0; i < key_dim; ++i) {
        double& s = truth.state[size_t{i} * value_dim + v];
        s *= decay;
        read += s * k[i];
      }
      const double delta = c.beta[t * c.gate_stride] * (c.v()[size_t{t} * c.qkv_stride + v] - read);
      for (uint32_t i = 0; i < key_dim; ++i) {
        double& s = truth.state[size_t{i} * value_dim + v];
        s += k[i] * delta;
        out += s * q[i];
      }
      truth.out[size_t{t} * value_dim + v] = out;
    }
  }
  return truth;
}

struct Result {
  GuardedFloats out, state;
};

Result RunRecurrent(const CpuKernels& row, const GdnCase& c) {
  Result r{GuardedFloats(size_t{c.shape.rows} * c.out_stride), GuardedFloats(c.state)};
  row.gdn_recurrent.fn({.q = c.q(),
                        .k = c.k(),
                        .v = c.v(),
                        .qkv_stride = c.qkv_stride,
                        .decay = c.decay.data(),
                        .beta = c.beta.data(),
                        .gate_stride = c.gate_stride,
                        .state_in = r.state.data(),
                        .state_out = r.state.data(),
                        .out = r.out.data(),
                        .out_stride = c.out_stride,
                        .rows = c.shape.rows,
                        .key_dim = c.shape.key_dim,
                        .value_dim = c.shape.value_dim});
  return r;
}

Result RunChunked(const CpuKernels& row, const GdnCase& c, uint32_t chunk_rows) {
  Result r{GuardedFloats(size_t{c.shape.rows} * c.out_stride), GuardedFloats(c.state)};
  GuardedFloats scratch(GdnChunkedScratchFloats(chunk_rows, c.shape.key_dim, c.shape.value_dim));
  row.gdn_chunked.fn({.q = c.q(),
                      .k = c.k(),
                      .v = c.v(),
                      .qkv_stride = c.qkv_stride,
                      .log_decay = c.log_decay.data(),
                      .beta = c.beta.data(),
                      .gate_stride = c.gate_stride,
                      .state = r.state.data(),
                      .out = r.out.data(),
                      .out_stride = c.out_stride,
                      .rows = c.shape.rows,
                      .key_dim = c.shape.key_dim,
                      .value_dim = c.shape.value_dim,
                      .chunk_rows = chunk_rows,
                      .scratch = scratch.data()});
  EXPECT_TRUE(scratch.MarginsIntact()) << "the scratch is larger than GdnChunkedScratchFloats";
  return r;
}

// Largest error over the largest value.
void ExpectNear(const GdnCase& c, const Truth& truth, const Result& result, double tolerance) {
  double out_max = 1e-3, out_error = 0, state_max = 1e-3, state_error = 0;
  for (size_t i = 0; i < truth.out.size(); ++i) {
    const float found = result.out[i / c.shape.value_dim * c.out_stride + i % c.shape.value_dim];
    out_max = std::max(out_max, std::fabs(truth.out[i]));
    out_error = std::max(out_error, std::fabs(truth.out[i] - found));
  }
  for (size_t i = 0; i < truth.state.size(); ++i) {
    state_max = std::max(state_max, std::fabs(truth.state[i]));
    state_error = std::max(state_error, std::fabs(truth.state[i] - result.state[i]));
  }
  EXPECT_LE(out_error, tolerance * out_max);
  EXPECT_LE(state_error, tolerance * state_max);
}

constexpr Gates kAllGates[] = {Gates::kMixed,        Gates::kDecayNearOne, Gates::kDecayNearZero,
                               Gates::kBetaNearZero, Gates::kBetaNearOne,  Gates::kDecayJumps};

TEST(GdnRecurrent, FollowsTheModelInDoublePrecision) {
  for (const Gates gates : kAllGates) {
    SCOPED_TRACE(static_cast<int>(gates));
    const GdnCase c = RandomCase({40, 32, 48}, gates, 7);
    const Truth truth = RunInDouble(c);
    for (const CpuKernels* row : SupportedRows()) {
      SCOPED_TRACE(RowName(*row));
      ExpectNear(c, truth, RunRecurrent(*row, c), 2e-6);
    }
  }
}

TEST(GdnRecurrent, HasTheSameBitsOnEveryInstructionSet) {
  for (const GdnShape shape : {GdnShape{1, 1, 1},
                               {3, 7, 20},
                               {2, 16, 7},
                               {4, 33, 33},
                               {5, 64, 16},
                               {3, 128, 128},
                               {2, 20, 130},
                               {2, 8, 256}}) {
    SCOPED_TRACE(::testing::Message() << shape.key_dim << " x " << shape.value_dim);
    const GdnCase c = RandomCase(shape, Gates::kMixed, shape.value_dim);
    const Result expected = RunRecurrent(ScalarRow(), c);
    for (const CpuKernels* row : SupportedRows()) {
      SCOPED_TRACE(RowName(*row));
      const Result actual = RunRecurrent(*row, c);
      EXPECT_TRUE(SameBits(expected.out, actual.out));
      EXPECT_TRUE(SameBits(expected.state, actual.state));
    }
  }
}

TEST(GdnRecurrent, ASplitIntoCallsGivesTheSameBits) {
  GdnCase c = RandomCase({9, 20, 36}, Gates::kMixed, 3);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    const Result whole = RunRecurrent(*row, c);
    GuardedFloats state(c.state), out(size_t{9} * c.out_stride);
    for (uint32_t begin = 0; begin < 9; begin += 4) {
      const uint32_t rows = std::min(4u, 9 - begin);
      row->gdn_recurrent.fn({.q = c.q() + size_t{begin} * c.qkv_stride,
                             .k = c.k() + size_t{begin} * c.qkv_stride,
                             .v = c.v() + size_t{begin} * c.qkv_stride,
                             .qkv_stride = c.qkv_stride,
                             .decay = c.decay.data() + begin * c.gate_stride,
                             .beta = c.beta.data() + begin * c.gate_stride,
                             .gate_stride = c.gate_stride,
                             .state_in = state.data(),
                             .state_out = state.data(),
                             .out = out.data() + size_t{begin} * c.out_stride,
                             .out_stride = c.out_stride,
                             .rows = rows,
                             .key_dim = 20,
                             .value_dim = 36});
    }
    EXPECT_TRUE(SameBits(whole.out, out));
    EXPECT_TRUE(SameBits(whole.state, state));
  }
}

TEST(GdnRecurrent, LeavesTheInputStateAloneAndMayOmitTheOutput) {
  const GdnCase c = RandomCase({3, 20, 36}, Gates::kMixed, 4);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    const Result in_place = RunRecurrent(*row, c);
    for (const uint32_t rows : {0u, 3u}) {
      GuardedFloats in(c.state), to(c.state.size());
      row->gdn_recurrent.fn({.q = c.q(),
                             .k = c.k(),
                             .v = c.v(),
                             .qkv_stride = c.qkv_stride,
                             .decay = c.decay.data(),
                             .beta = c.beta.data(),
                             .gate_stride = c.gate_stride,
                             .state_in = in.data(),
                             .state_out = to.data(),
                             .rows = rows,
                             .key_dim = 20,
                             .value_dim = 36});
      EXPECT_TRUE(SameBits(GuardedFloats(c.state), in));
      EXPECT_TRUE(SameBits(rows == 0 ? in : in_place.state, to));
    }
  }
}

TEST(GdnChunked, FollowsTheModelInDoublePrecision) {
  for (const Gates gates : kAllGates) {
    for (const uint32_t rows : {1u, 5u, 63u, 64u, 65u, 200u}) {
      SCOPED_TRACE(::testing::Message() << "gates " << static_cast<int>(gates) << " rows " << rows);
      const GdnCase c = RandomCase({rows, 32, 48}, gates, rows);
      const Truth truth = RunInDouble(c);
      for (const CpuKernels* row : SupportedRows()) {
        SCOPED_TRACE(RowName(*row));
        ExpectNear(c, truth, RunChunked(*row, c, 64), 1e-5);
      }
    }
  }
}

TEST(GdnChunked, FollowsTheModelAtItsRealHeadShape) {
  for (const Gates gates : {Gates::kMixed, Gates::kDecayNearOne, Gates::kDecayJumps}) {
    const GdnCase c = RandomCase({100, 128, 128}, gates, 11);
    const Truth truth = RunInDouble(c);
    ExpectNear(c, truth, RunChunked(*SupportedRows().front(), c, 64), 1e-5);
    ExpectNear(c, truth, RunRecurrent(*SupportedRows().front(), c), 1e-5);
  }
}

TEST(GdnChunked, HasTheSameBitsOnEveryInstructionSet) {
  struct Case {
    GdnShape shape;
    uint32_t chunk_rows;
  };
  for (const Case& k : {Case{{1, 1, 1}, 64},
                        {{7, 7, 20}, 4},
                        {{20, 16, 7}, 64},
                        {{33, 33, 33}, 16},
                        {{70, 20, 64}, 64},
                        {{67, 128, 128}, 64},
                        {{40, 30, 130}, 33}}) {
    SCOPED_TRACE(::testing::Message() << k.shape.rows << " rows, chunk " << k.chunk_rows);
    const GdnCase c = RandomCase(k.shape, Gates::kMixed, k.shape.rows);
    const Result expected = RunChunked(ScalarRow(), c, k.chunk_rows);
    for (const CpuKernels* row : SupportedRows()) {
      SCOPED_TRACE(RowName(*row));
      const Result actual = RunChunked(*row, c, k.chunk_rows);
      EXPECT_TRUE(SameBits(expected.out, actual.out));
      EXPECT_TRUE(SameBits(expected.state, actual.state));
    }
  }
}

// Padding a short last chunk is not needed: nothing beyond its rows is read or kept.
TEST(GdnChunked, NaNsInTheScratchChangeNothing) {
  const GdnCase c = RandomCase({21, 20, 36}, Gates::kMixed, 8);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    const Result expected = RunChunked(*row, c, 64);
    std::vector<float> scratch(GdnChunkedScratchFloats(64, 20, 36), std::nanf(""));
    GuardedFloats state(c.state);
    row->gdn_chunked.fn({.q = c.q(),
                         .k = c.k(),
                         .v = c.v(),
                         .qkv_stride = c.qkv_stride,
                         .log_decay = c.log_decay.data(),
                         .beta = c.beta.data(),
                         .gate_stride = c.gate_stride,
                         .state = state.data(),
                         .rows = 21,
                         .key_dim = 20,
                         .value_dim = 36,
                         .scratch = scratch.data()});
    EXPECT_TRUE(SameBits(expected.state, state));
  }
}

}  // namespace
}  // namespace hearth
