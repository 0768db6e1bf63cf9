// RMS and L2 normalisation: formulas in double precision, and the same bits on every instruction
// set.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "cpu_kernels/ops/elementwise.h"
#include "cpu_kernels/ops/gdn.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/row_fixture.h"

namespace hearth {
namespace {

struct NormCase {
  uint32_t rows, groups, group;
  bool shared_weight;  // one weight vector for all groups
  NormWeight weight;
};

std::vector<NormCase> NormCases() {
  std::vector<NormCase> cases;
  for (const uint32_t group : kOddDims) {
    for (const uint32_t groups : {1u, 3u, 4u, 6u}) {
      for (const bool shared : {false, true}) {
        cases.push_back({1 + group % 3, groups, group, shared, NormWeight::kOnePlus});
        cases.push_back({1 + group % 3, groups, group, shared, NormWeight::kPlain});
      }
    }
  }
  return cases;
}

TEST(RmsNorm, FollowsTheFormulaPerGroupWithTheSameBitsOnEveryInstructionSet) {
  for (const NormCase& c : NormCases()) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.groups << " x " << c.group);
    const uint32_t cols = c.groups * c.group;
    const uint32_t x_stride = cols + 3, y_stride = cols + 5;
    Prng prng(cols);
    const auto x = RandomFloats(prng, size_t{c.rows} * x_stride);
    const auto w = RandomFloats(prng, c.shared_weight ? c.group : cols, -1, 1);
    RmsNormArgs args{.x = x.data(),
                     .x_stride = x_stride,
                     .y_stride = y_stride,
                     .w = w.data(),
                     .w_count = static_cast<uint32_t>(w.size()),
                     .weight = c.weight,
                     .rows = c.rows,
                     .cols = cols,
                     .group = c.group,
                     .epsilon = 1e-6f};
    GuardedFloats expected(size_t{c.rows} * y_stride);
    args.y = expected.data();
    ScalarRow().rms_norm.fn(args);
    for (uint32_t i = 0; i < c.rows * cols; ++i) {
      const uint32_t t = i / cols, j = i % cols, begin = j / c.group * c.group;
      double squares = 0;
      for (uint32_t k = 0; k < c.group; ++k) {
        const double v = x[size_t{t} * x_stride + begin + k];
        squares += v * v;
      }
      const double weight = w[j % w.size()] + (c.weight == NormWeight::kOnePlus ? 1.0 : 0.0);
      const double y = x[size_t{t} * x_stride + j] / std::sqrt(squares / c.group + 1e-6) * weight;
      ASSERT_NEAR(expected[size_t{t} * y_stride + j], y, 2e-6 * (1 + std::fabs(y)));
    }
    for (const CpuKernels* row : SupportedRows()) {
      SCOPED_TRACE(RowName(*row));
      GuardedFloats actual(size_t{c.rows} * y_stride);
      args.y = actual.data();
      row->rms_norm.fn(args);
      ASSERT_TRUE(SameBits(expected, actual));
    }
  }
}

TEST(RmsNorm, InPlaceGivesTheSameBits) {
  Prng prng(5);
  const auto x = RandomFloats(prng, size_t{2} * 6 * 33);
  const auto w = RandomFloats(prng, 33);
  RmsNormArgs args{.x = x.data(),
                   .x_stride = 6 * 33,
                   .y_stride = 6 * 33,
                   .w = w.data(),
                   .w_count = 33,
                   .rows = 2,
                   .cols = 6 * 33,
                   .group = 33,
                   .epsilon = 1e-6f};
  GuardedFloats expected(x.size());
  args.y = expected.data();
  ScalarRow().rms_norm.fn(args);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    GuardedFloats actual(x);
    args.x = args.y = actual.data();
    row->rms_norm.fn(args);
    EXPECT_TRUE(SameBits(expected, actual));
  }
}

// An underflowing square is -0 or +0 by its sign; padding lanes must not change it, nor may they
// turn the norm of a zero row into a NaN.
TEST(RmsNorm, TinyAndZeroRowsStayFinite) {
  const std::vector<float> x = {0, 0, 0, 0, 0, 1e-30f, -1e-30f, 1e-38f, -0.0f, 1e-45f};
  const std::vector<float> w(5, 0.0f);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    std::vector<float> y(10);
    row->rms_norm.fn({.x = x.data(),
                      .x_stride = 5,
                      .y = y.data(),
                      .y_stride = 5,
                      .w = w.data(),
                      .w_count = 5,
                      .rows = 2,
                      .cols = 5,
                      .group = 5,
                      .epsilon = 1e-6f});
    for (uint32_t i = 0; i < 10; ++i) EXPECT_NEAR(y[i], x[i] * 1e3, 1e-30) << i;
  }
}

TEST(L2Norm, FollowsTheFormulaPerHeadWithTheSameBitsOnEveryInstructionSet) {
  for (const uint32_t dim : kOddDims) {
    SCOPED_TRACE(dim);
    constexpr uint32_t kRows = 3, kHeads = 5;
    const uint32_t stride = kHeads * dim + 7;
    Prng prng(dim);
    const auto x = RandomFloats(prng, size_t{kRows} * stride);
    L2NormArgs args{
        .x_stride = stride, .rows = kRows, .heads = kHeads, .dim = dim, .scale = 0.0884f};
    GuardedFloats expected(x);
    args.x = expected.data();
    ScalarRow().l2_norm.fn(args);
    for (uint32_t i = 0; i < x.size(); ++i) {
      const uint32_t column = i % stride;
      if (column >= kHeads * dim) {
        ASSERT_EQ(expected[i], x[i]) << "wrote the gap";
        continue;
      }
      double squares = 0;
      for (uint32_t k = 0; k < dim; ++k) {
        const double v = x[i / stride * stride + column / dim * dim + k];
        squares += v * v;
      }
      ASSERT_NEAR(expected[i], x[i] / std::sqrt(squares + 1e-6) * double{0.0884f}, 1e-6);
    }
    for (const CpuKernels* row : SupportedRows()) {
      SCOPED_TRACE(RowName(*row));
      GuardedFloats actual(x);
      args.x = actual.data();
      row->l2_norm.fn(args);
      ASSERT_TRUE(SameBits(expected, actual));
    }
  }
}

}  // namespace
}  // namespace hearth
