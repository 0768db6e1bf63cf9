// Block scores and attention over chosen positions: formulas in double precision, and the same bits
// on every instruction set.
#include "cpu_kernels/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"
#include "tests/cpu_kernels/row_fixture.h"

namespace hearth {
namespace {

TEST(BlockScore, AddsThePositivePartOfEachHeadWithTheSameBitsOnEveryInstructionSet) {
  for (const uint32_t dim : kOddDims) {
    for (const uint32_t heads : {1u, 4u, 7u}) {
      SCOPED_TRACE(::testing::Message() << heads << " heads of " << dim);
      constexpr uint32_t kBlocks = 19;
      Prng prng(dim);
      const auto q = RandomFloats(prng, size_t{heads} * dim);
      const auto keys = RandomFloats(prng, size_t{kBlocks} * dim);
      BlockScoreArgs args{.q = q.data(),
                          .keys = keys.data(),
                          .heads = heads,
                          .dim = dim,
                          .block_count = kBlocks,
                          .scale = 0.125f};
      GuardedFloats expected(kBlocks);
      args.score = expected.data();
      ScalarRow().block_score.fn(args);
      for (uint32_t b = 0; b < kBlocks; ++b) {
        double score = 0;
        for (uint32_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (uint32_t i = 0; i < dim; ++i) dot += double{q[h * dim + i]} * keys[b * dim + i];
          score += std::max(0.0, dot);
        }
        ASSERT_NEAR(expected[b], score * 0.125, 1e-6 * (1 + dim));
      }
      for (const CpuKernels* row : SupportedRows()) {
        SCOPED_TRACE(RowName(*row));
        GuardedFloats actual(kBlocks);
        args.score = actual.data();
        row->block_score.fn(args);
        ASSERT_TRUE(SameBits(expected, actual));
      }
    }
  }
}

TEST(BlockScore, KeepsANaNForTheChoiceToReject) {
  const std::vector<float> q = {1, 1, 1, 1};
  const std::vector<float> keys = {std::nanf(""), -1};
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    float score[2] = {};
    row->block_score.fn({.q = q.data(),
                         .keys = keys.data(),
                         .score = score,
                         .heads = 4,
                         .dim = 1,
                         .block_count = 2,
                         .scale = 1});
    EXPECT_TRUE(std::isnan(score[0]));
    EXPECT_EQ(score[1], 0);
  }
}

struct AttendCase {
  uint32_t dim, cached, kv_stride;
  std::vector<uint32_t> positions;
  std::vector<float> q, k, v;
};

// `count` ascending positions of `cached`.
AttendCase RandomAttend(uint32_t dim, uint32_t cached, uint32_t count, float spread) {
  Prng prng(uint64_t{dim} * 10007 + count);
  AttendCase c{dim, cached, 2 * dim + 3, {}, {}, {}, {}};
  for (uint32_t p = 0; p < cached; ++p) {
    const uint32_t wanted = count - static_cast<uint32_t>(c.positions.size());
    if (prng.Below(cached - p) < wanted) c.positions.push_back(p);
  }
  c.q = RandomFloats(prng, dim, -spread, spread);
  c.k = RandomFloats(prng, size_t{cached} * c.kv_stride);
  c.v = RandomFloats(prng, size_t{cached} * c.kv_stride);
  return c;
}

GuardedFloats RunAttend(const CpuKernels& row, const AttendCase& c) {
  GuardedFloats out(c.dim), scores(c.positions.size());
  row.attend.fn({.q = c.q.data(),
                 .k = c.k.data(),
                 .v = c.v.data(),
                 .kv_stride = c.kv_stride,
                 .positions = c.positions.data(),
                 .count = static_cast<uint32_t>(c.positions.size()),
                 .dim = c.dim,
                 .scale = 0.0625f,
                 .scores = scores.data(),
                 .out = out.data()});
  EXPECT_TRUE(scores.MarginsIntact());
  return out;
}

std::vector<double> AttendInDouble(const AttendCase& c) {
  std::vector<double> p(c.positions.size()), out(c.dim);
  for (size_t i = 0; i < p.size(); ++i) {
    const float* key = c.k.data() + size_t{c.positions[i]} * c.kv_stride;
    for (uint32_t d = 0; d < c.dim; ++d) p[i] += double{c.q[d]} * key[d] * 0.0625;
  }
  const double max = *std::max_element(p.begin(), p.end());
  for (double& score : p) score = std::exp(score - max);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (size_t i = 0; i < p.size(); ++i) {
    const float* value = c.v.data() + size_t{c.positions[i]} * c.kv_stride;
    for (uint32_t d = 0; d < c.dim; ++d) out[d] += p[i] / sum * value[d];
  }
  return out;
}

TEST(Attend, FollowsTheFormulaWithTheSameBitsOnEveryInstructionSet) {
  for (const uint32_t dim : kOddDims) {
    for (const uint32_t count : {1u, 3u, 4u, 16u, 21u, 77u}) {
      for (const uint32_t cached : {count, 3 * count + 5}) {
        SCOPED_TRACE(::testing::Message() << count << " of " << cached << ", dim " << dim);
        const AttendCase c = RandomAttend(dim, cached, count, 2);
        ASSERT_EQ(c.positions.size(), count);
        const GuardedFloats expected = RunAttend(ScalarRow(), c);
        const std::vector<double> truth = AttendInDouble(c);
        for (uint32_t d = 0; d < dim; ++d) ASSERT_NEAR(expected[d], truth[d], 1e-5);
        for (const CpuKernels* row : SupportedRows()) {
          SCOPED_TRACE(RowName(*row));
          ASSERT_TRUE(SameBits(expected, RunAttend(*row, c)));
        }
      }
    }
  }
}

TEST(Attend, TheLargestSelectionOfTheModelFollowsTheFormula) {
  const AttendCase c = RandomAttend(256, 3000, 2051, 2);
  const std::vector<double> truth = AttendInDouble(c);
  const GuardedFloats expected = RunAttend(ScalarRow(), c);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    const GuardedFloats out = RunAttend(*row, c);
    EXPECT_TRUE(SameBits(expected, out));
    for (uint32_t d = 0; d < 256; ++d) ASSERT_NEAR(out[d], truth[d], 1e-5);
  }
}

// Heads that share keys and values: each one's bits are those of a call of its own.
TEST(Attend, HeadsInOneCallHaveTheBitsOfEachAlone) {
  for (const uint32_t dim : {1u, 17u, 64u, 100u, 256u}) {
    for (const uint32_t heads : {1u, 2u, 3u, 4u, 5u, 8u, 12u}) {
      for (const uint32_t count : {1u, 5u, 63u, 64u, 65u, 150u}) {
        SCOPED_TRACE(::testing::Message() << heads << " heads of " << dim << ", " << count);
        AttendCase c = RandomAttend(dim, 2 * count, count, 2);
        Prng prng(heads);
        const uint32_t q_stride = 2 * dim + 1, out_stride = dim + 3;
        const auto queries = RandomFloats(prng, size_t{heads} * q_stride, -2, 2);
        for (const CpuKernels* row : SupportedRows()) {
          SCOPED_TRACE(RowName(*row));
          GuardedFloats out(size_t{heads} * out_stride), scores(size_t{heads} * count);
          row->attend.fn({.q = queries.data(),
                          .k = c.k.data(),
                          .v = c.v.data(),
                          .kv_stride = c.kv_stride,
                          .positions = c.positions.data(),
                          .count = count,
                          .dim = dim,
                          .scale = 0.0625f,
                          .scores = scores.data(),
                          .out = out.data(),
                          .heads = heads,
                          .q_stride = q_stride,
                          .out_stride = out_stride});
          EXPECT_TRUE(scores.MarginsIntact() && out.MarginsIntact());
          for (uint32_t head = 0; head < heads; ++head) {
            const float* q = queries.data() + size_t{head} * q_stride;
            c.q.assign(q, q + dim);
            const GuardedFloats alone = RunAttend(ScalarRow(), c);
            for (uint32_t d = 0; d < dim; ++d) {
              ASSERT_EQ(std::bit_cast<uint32_t>(out[head * out_stride + d]),
                        std::bit_cast<uint32_t>(alone[d]))
                  << head << " " << d;
            }
          }
        }
      }
    }
  }
}

TEST(Attend, ScoresFarApartNeitherOverflowNorVanish) {
  const AttendCase c = RandomAttend(64, 40, 40, 3000);
  const std::vector<double> truth = AttendInDouble(c);
  for (const CpuKernels* row : SupportedRows()) {
    SCOPED_TRACE(RowName(*row));
    const GuardedFloats out = RunAttend(*row, c);
    for (uint32_t d = 0; d < 64; ++d) ASSERT_NEAR(out[d], truth[d], 1e-3);
  }
}

}  // namespace
}  // namespace hearth
