// pack/quant/xt_encoder.h and xt_feedback.h: matrices that decode to what they were, rows of any
// size, the same bytes from any number of threads, and feedback that pays where inputs are skewed.
#include "pack/quant/xt_encoder.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "pack/format/xt_matrix.h"
#include "pack/quant/xt_feedback.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

float Normal(Prng& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.Uniform()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * random.Uniform()));
}

std::vector<float> RandomMatrix(const XtShape& shape, uint32_t seed) {
  Prng random(seed);
  std::vector<float> values(size_t{shape.rows} * shape.cols);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Normal(random) * 0.02f * static_cast<float>(1 + i / shape.cols % 5);
  }
  return values;
}

struct Matrix {
  std::vector<std::byte> bytes;
  float multiplier = 0;
  XtEncodeStats stats;
};

Matrix Encode(const XtShape& shape, std::span<const float> values,
              const XtFeedback* feedback = nullptr, XtIsa isa = BestXtIsa()) {
  Matrix m{.bytes = std::vector<std::byte>(shape.bytes(), std::byte{0xEE})};
  XtMatrixJob job{.shape = shape, .values = values, .feedback = feedback, .matrix = m.bytes};
  const XtEncoder encoder(isa);
  const absl::Status status = encoder.Encode({&job, 1});
  EXPECT_TRUE(status.ok()) << status;
  m.multiplier = job.multiplier;
  m.stats = job.stats;
  return m;
}

std::vector<float> Decode(const XtShape& shape, const Matrix& m) {
  std::vector<float> values(size_t{shape.rows} * shape.cols);
  DecodeXtMatrix(shape, m.bytes, m.multiplier, values);
  return values;
}

double RelativeError(std::span<const float> a, std::span<const float> b) {
  double error = 0, power = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    power += double{a[i]} * a[i];
  }
  return error / power;
}

TEST(XtEncoder, DecodesToTheMatrixWithTheErrorThatItStates) {
  constexpr double kBound[] = {0, 0, 0.085, 0.021, 0.0058};
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const XtShape shape = {.rows = 128, .cols = 96, .bits = bits};
    const std::vector<float> values = RandomMatrix(shape, bits);
    const Matrix m = Encode(shape, values);
    const double error = RelativeError(values, Decode(shape, m));
    EXPECT_LT(error, kBound[bits]);
    EXPECT_EQ(m.stats.weights, values.size());
    EXPECT_NEAR(m.stats.error.squared_error / m.stats.error.squared_values, error, 1e-4 * error);
  }
}

TEST(XtEncoder, RowsThatFillNoBandAndSeveralGroupsHaveTheirOwnStreams) {
  const XtShape shape = {.rows = 41 * 16 - 3, .cols = 32, .bits = 4};
  ASSERT_EQ(shape.group_count(), 2u);
  const std::vector<float> values = RandomMatrix(shape, 3);
  const Matrix m = Encode(shape, values);
  EXPECT_LT(RelativeError(values, Decode(shape, m)), 0.006);
  const size_t used = shape.scale_offset_bytes() + size_t{shape.rows} * 2;
  for (size_t i = used; i < m.bytes.size(); ++i) EXPECT_EQ(m.bytes[i], std::byte{0}) << i;
}

TEST(XtEncoder, RowsOfZerosAndTinyRowsKeepTheirSize) {
  const XtShape shape = {.rows = 64, .cols = 64, .bits = 4};
  std::vector<float> values = RandomMatrix(shape, 4);
  for (uint32_t c = 0; c < 64; ++c) {
    values[5 * 64 + c] = 0;
    values[9 * 64 + c] *= 1e-5f;
  }
  const std::vector<float> decoded = Decode(shape, Encode(shape, values));
  for (uint32_t c = 0; c < 64; ++c) EXPECT_EQ(decoded[5 * 64 + c], 0.0f);
  const auto row = [](const std::vector<float>& m) { return std::span(m).subspan(9 * 64, 64); };
  EXPECT_LT(RelativeError(row(values), row(decoded)), 0.03);
  const std::vector<float> zeros(values.size(), 0.0f);
  EXPECT_EQ(Decode(shape, Encode(shape, zeros)), zeros);
}

TEST(XtEncoder, ValuesThatAreNotNumbersAreNamed) {
  const XtShape shape = {.rows = 16, .cols = 32, .bits = 2};
  std::vector<float> values = RandomMatrix(shape, 5);
  values[3 * 32 + 7] = NAN;
  std::vector<std::byte> bytes(shape.bytes());
  XtMatrixJob job{.shape = shape, .values = values, .matrix = bytes};
  const absl::Status status = XtEncoder().Encode({&job, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("row 3, column 7"), absl::string_view::npos) << status;
}

TEST(XtEncoder, ThreadsAndInstructionSetsDoNotChangeABit) {
  const XtShape shape = {.rows = 48, .cols = 64, .bits = 3};
  const std::vector<float> values = RandomMatrix(shape, 6);
  const Matrix expected = Encode(shape, values);
  for (const int threads : {1, 3}) {
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 4);
    tbb::task_arena arena(threads);
    arena.execute([&] { EXPECT_EQ(Encode(shape, values).bytes, expected.bytes); });
  }
  if (XtIsaRuns(XtIsa::kAvx2)) {
    EXPECT_EQ(Encode(shape, values, nullptr, XtIsa::kAvx2).bytes, expected.bytes);
  }
}

// Inputs whose energy lies in few directions, in the rotated space, and their second moment.
std::vector<float> SkewedMoment(uint32_t cols, std::vector<float>* rows) {
  Prng random(8);
  constexpr uint32_t kDirections = 12, kRows = 600;
  std::vector<float> basis(size_t{kDirections} * cols);
  for (float& v : basis) v = Normal(random);
  std::vector<float> moment(size_t{cols} * cols, 0.0f);
  rows->assign(size_t{kRows} * cols, 0.0f);
  for (uint32_t r = 0; r < kRows; ++r) {
    float* const x = rows->data() + size_t{r} * cols;
    for (uint32_t d = 0; d < kDirections; ++d) {
      const float a = Normal(random);
      for (uint32_t c = 0; c < cols; ++c) x[c] += a * basis[size_t{d} * cols + c];
    }
    for (uint32_t c = 0; c < cols; ++c) x[c] += 0.3f * Normal(random);
  }
  AddSecondMomentRows(*rows, cols, 0, cols, moment);
  MirrorLower(moment, cols);
  return moment;
}

// Squared error of w . x over rows x of the rotated space, relative to the outputs.
double OutputError(const XtShape& shape, std::vector<float> values, std::vector<float> decoded,
                   const std::vector<float>& inputs) {
  double error = 0, power = 0;
  for (uint32_t r = 0; r < shape.rows; ++r) {
    const std::span<float> w = std::span(values).subspan(size_t{r} * shape.cols, shape.cols);
    const std::span<float> q = std::span(decoded).subspan(size_t{r} * shape.cols, shape.cols);
    RotateXt(w);
    RotateXt(q);
    for (size_t first = 0; first < inputs.size(); first += shape.cols) {
      double y = 0, z = 0;
      for (uint32_t c = 0; c < shape.cols; ++c) {
        y += double{w[c]} * inputs[first + c];
        z += double{q[c]} * inputs[first + c];
      }
      error += (y - z) * (y - z);
      power += y * y;
    }
  }
  return error / power;
}

TEST(XtFeedback, LowersTheErrorOfOutputsOnSkewedInputs) {
  const XtShape shape = {.rows = 64, .cols = 160, .bits = 3};
  const std::vector<float> values = RandomMatrix(shape, 7);
  std::vector<float> inputs;
  const std::vector<float> moment = SkewedMoment(shape.cols, &inputs);
  const auto feedback = XtFeedback::Create(moment, shape.cols, 0.01);
  ASSERT_TRUE(feedback.ok()) << feedback.status();
  const double without = OutputError(shape, values, Decode(shape, Encode(shape, values)), inputs);
  const double with =
      OutputError(shape, values, Decode(shape, Encode(shape, values, &*feedback)), inputs);
  EXPECT_LT(with, 0.6 * without);
}

TEST(XtFeedback, IsNothingForInputsWithoutCorrelation) {
  constexpr uint32_t kCols = 96;
  std::vector<float> moment(size_t{kCols} * kCols, 0.0f);
  for (uint32_t i = 0; i < kCols; ++i) moment[size_t{i} * kCols + i] = 3.0f;
  const auto feedback = XtFeedback::Create(moment, kCols, 0.01);
  ASSERT_TRUE(feedback.ok());
  EXPECT_EQ(feedback->OfBlock(2).size(), 0u);
  ASSERT_EQ(feedback->OfBlock(0).size(), 64u * 32u);
  for (const float v : feedback->OfBlock(0)) EXPECT_EQ(v, 0.0f);
  std::vector<float> error(kCols, 0.0f);
  error[5] = 2.0f;
  EXPECT_NEAR(feedback->Loss(error), 4.0 * 1.01, 1e-5);
}

TEST(XtFeedback, FactorsReproduceTheMoment) {
  constexpr uint32_t kCols = 96;
  std::vector<float> inputs;
  const std::vector<float> moment = SkewedMoment(kCols, &inputs);
  const auto feedback = XtFeedback::Create(moment, kCols, 0.05);
  ASSERT_TRUE(feedback.ok());
  // Of an error in one late column: block 0 and 1 can undo all but what D_2 keeps, so the targets
  // that feedback asks for lower the loss.
  std::vector<float> error(kCols, 0.0f);
  error[70] = 1.0f;
  const double alone = feedback->Loss(error);
  for (const uint32_t block : {1u, 0u}) {
    const std::span<const float> factor = feedback->OfBlock(block);
    const uint32_t after = (block + 1) * 32;
    for (uint32_t i = 0; i < 32; ++i) {
      float sum = 0;
      for (uint32_t c = after; c < kCols; ++c) sum += error[c] * factor[(c - after) * 32 + i];
      error[block * 32 + i] = -sum;
    }
  }
  EXPECT_LT(feedback->Loss(error), 0.5 * alone);
}

TEST(XtFeedback, RefusesMomentsThatSayNothing) {
  const std::vector<float> zero(64 * 64, 0.0f);
  EXPECT_EQ(XtFeedback::Create(zero, 64, 0.01).status().code(), absl::StatusCode::kInvalidArgument);
  std::vector<float> bad(64 * 64, 0.0f);
  bad[0] = INFINITY;
  EXPECT_EQ(XtFeedback::Create(bad, 64, 0.01).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
