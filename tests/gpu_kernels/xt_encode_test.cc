// The GPU's XT encoder: its tables name the levels that the CPU's trellis has, and its bytes are
// the CPU encoder's.
#include "gpu_kernels/ops/xt_encode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "pack/quant/xt_encoder.h"
#include "pack/quant/xt_feedback.h"
#include "pack/quant/xt_trellis.h"
#include "runtime/base/prng.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/support/xt_plain_encoder.h"

namespace hearth {
namespace {

std::vector<float> Gaussians(size_t count, float deviation, uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& v : values) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    v = static_cast<float>(radius * std::cos(6.283185307179586 * prng.Uniform())) * deviation;
  }
  return values;
}

TEST(XtGpuTables, NameTheLevelOfEveryStepOfTheTrellis) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const XtTrellis trellis(XtCodeOf(bits));
    const absl::StatusOr<XtGpuTables> tables = MakeXtGpuTables(XtCodeOf(bits));
    ASSERT_TRUE(tables.ok()) << tables.status();
    const uint32_t rows = trellis.state_count() / 16;
    Prng prng(bits);
    for (int trial = 0; trial < 20000; ++trial) {
      const auto phase = static_cast<uint32_t>(prng.Next() % trellis.code.phase_count);
      const auto group = static_cast<uint32_t>(prng.Next() % trellis.group_count());
      const auto symbol = static_cast<uint32_t>(prng.Next() % trellis.branch_count());
      const auto dropped = static_cast<uint32_t>(prng.Next() % trellis.branch_count());
      const uint32_t before = trellis.Predecessor(group, dropped);
      const uint32_t after = group << bits | symbol;
      ASSERT_EQ(trellis.Successor(before, symbol), after);
      const XtTrellis::Phase& p = trellis.phases[phase];
      const uint8_t hash = p.hash_of_symbol[symbol] ^ p.hash_of_state[0][before & 255] ^
                           p.hash_of_state[1][before >> 8];
      const uint8_t mapped = tables->row_hash[phase * rows + after / 16] ^
                             tables->lane_hash[phase][after % 16] ^
                             tables->dropped_hash[phase][dropped];
      ASSERT_EQ(tables->level[phase * 256 + mapped], p.level[hash]);
    }
  }
}

TEST(XtGpuTables, NeighbouringRowsHaveHashesThatDifferInTheirLowBits) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const absl::StatusOr<XtGpuTables> tables = MakeXtGpuTables(XtCodeOf(bits));
    ASSERT_TRUE(tables.ok()) << tables.status();
    const size_t rows = tables->row_hash.size() / tables->phase_count;
    for (uint32_t phase = 0; phase < tables->phase_count; ++phase) {
      for (uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(tables->row_hash[phase * rows + i] & 7, i) << bits << " bits, phase " << phase;
      }
    }
  }
}

TEST(XtGpuTables, RefuseAWindowThatNoKernelIsMadeFor) {
  XtCode code = XtCodeOf(2);
  code.oldest[0][0] = 1;
  EXPECT_EQ(MakeXtGpuTables(code).status().code(), absl::StatusCode::kInvalidArgument);
}

class XtGpuEncoderTest : public OnGpu, public testing::WithParamInterface<uint32_t> {};

TEST_P(XtGpuEncoderTest, WritesTheBytesOfTheCpuEncoder) {
  // 41 bands make two groups, the last row is padding, two matrices share one feedback.
  const XtShape shape = {.rows = 41 * 16 - 1, .cols = 64, .bits = GetParam()};
  const float deviation = XtCodeOf(shape.bits).level_deviation;
  std::vector<float> moment(size_t{shape.cols} * shape.cols);
  for (uint32_t i = 0; i < shape.cols; ++i) {
    for (uint32_t j = 0; j < shape.cols; ++j) {
      moment[size_t{i} * shape.cols + j] =
          static_cast<float>(std::pow(0.9, std::abs(static_cast<int>(i) - static_cast<int>(j))));
    }
  }
  const absl::StatusOr<XtFeedback> feedback = XtFeedback::Create(moment, shape.cols, 0.01);
  ASSERT_TRUE(feedback.ok()) << feedback.status();
  const size_t values = size_t{shape.rows} * shape.cols;
  const std::vector<float> first = Gaussians(values, deviation, 1);
  const std::vector<float> second = Gaussians(values, deviation * 3, 2);  // beyond the code's range
  const std::vector<float> third = Gaussians(values, deviation, 3);
  struct Case {
    const std::vector<float>& weights;
    bool feedback;
  };
  const Case cases[] = {{first, true}, {second, true}, {third, false}};
  std::vector<std::vector<std::byte>> codes(3, std::vector<std::byte>(shape.code_bytes()));
  std::vector<std::vector<float>> row_errors(3, std::vector<float>(shape.rows));
  std::vector<XtGpuEncoder::Job> jobs;
  for (size_t m = 0; m < 3; ++m) {
    jobs.push_back({.targets = cases[m].weights,
                    .feedback = cases[m].feedback ? feedback->All() : std::span<const float>(),
                    .codes = codes[m],
                    .row_errors = row_errors[m]});
  }
  auto encoder = XtGpuEncoder::Create(gpu(), shape, 3);
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const absl::Status status = (*encoder)->Encode(jobs);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t m = 0; m < 3; ++m) {
    std::vector<float> errors;
    std::vector<std::byte> expected(shape.code_bytes());
    EncodeXtPlainly(shape, cases[m].weights, jobs[m].feedback, expected, errors);
    EXPECT_TRUE(codes[m] == expected) << "matrix " << m;
    for (uint32_t r = 0; r < shape.rows; ++r) {
      double sum = 0;
      for (uint32_t c = 0; c < shape.cols; ++c) {
        sum += double{errors[size_t{r} * shape.cols + c]} * errors[size_t{r} * shape.cols + c];
      }
      ASSERT_NEAR(row_errors[m][r], sum, 1e-4 * sum) << "matrix " << m << ", row " << r;
    }
  }
}

TEST_P(XtGpuEncoderTest, RefusesStreamsThatAreTooShort) {
  const auto encoder = XtGpuEncoder::Create(gpu(), {.rows = 64, .cols = 64, .bits = GetParam()}, 1);
  EXPECT_EQ(encoder.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Bits, XtGpuEncoderTest, testing::Values(2u, 3u, 4u));

}  // namespace
}  // namespace hearth
