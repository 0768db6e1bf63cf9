// Matrices that a device encodes get the bytes and the errors that the CPU encoder gives them.
#include "pack/quant/xt_device.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "pack/quant/xt_encoder.h"
#include "pack/quant/xt_feedback.h"
#include "runtime/base/prng.h"
#include "tests/support/xt_plain_encoder.h"

namespace hearth {
namespace {

struct Matrices {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::byte>> matrix;
  std::vector<XtMatrixJob> jobs;
};

// Three of 48 rows, between them one of 32, with and without feedback.
Matrices Make(uint32_t bits, const XtFeedback* feedback) {
  Matrices made;
  const uint32_t rows[] = {48, 32, 48, 47 + 1};
  Prng prng(bits);
  made.values.resize(4);
  made.matrix.resize(4);
  for (size_t m = 0; m < 4; ++m) {
    const XtShape shape = {.rows = rows[m], .cols = 64, .bits = bits};
    made.values[m].resize(size_t{shape.rows} * shape.cols);
    for (float& v : made.values[m]) {
      v = static_cast<float>(prng.Uniform() + prng.Uniform() + prng.Uniform() - 1.5);
    }
    made.matrix[m].assign(shape.bytes(), std::byte{0xA5});
    made.jobs.push_back({.shape = shape,
                         .values = made.values[m],
                         .feedback = m == 2 ? nullptr : feedback,
                         .matrix = made.matrix[m]});
  }
  return made;
}

TEST(XtDevice, MatricesItTakesAreTheCpusInBytesAndErrors) {
  std::vector<float> moment(64 * 64);
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 64; ++j) {
      moment[i * 64 + j] = static_cast<float>(std::pow(0.8, std::abs(i - j)));
    }
  }
  const absl::StatusOr<XtFeedback> feedback = XtFeedback::Create(moment, 64, 0.01);
  ASSERT_TRUE(feedback.ok()) << feedback.status();
  for (const uint32_t bits : {2u, 3u, 4u}) {
    Matrices expected = Make(bits, &*feedback);
    Matrices found = Make(bits, &*feedback);
    ASSERT_TRUE(XtEncoder().Encode(expected.jobs).ok());
    PlainXtDevice device(48);
    ASSERT_TRUE(XtEncoder(BestXtIsa(), &device).Encode(found.jobs).ok());
    EXPECT_EQ(device.calls, std::vector<size_t>{3}) << "all of a shape in one call";
    for (size_t m = 0; m < 4; ++m) {
      EXPECT_TRUE(found.matrix[m] == expected.matrix[m]) << bits << " bits, matrix " << m;
      EXPECT_EQ(found.jobs[m].multiplier, expected.jobs[m].multiplier);
      EXPECT_EQ(found.jobs[m].stats.weights, expected.jobs[m].stats.weights);
      EXPECT_NEAR(found.jobs[m].stats.error.squared_error,
                  expected.jobs[m].stats.error.squared_error,
                  1e-5 * expected.jobs[m].stats.error.squared_error);
      EXPECT_EQ(found.jobs[m].stats.error.squared_values,
                expected.jobs[m].stats.error.squared_values);
    }
  }
}

class FailingDevice final : public XtMatrixDevice {
 public:
  bool Takes(const XtShape&) const override { return true; }
  absl::Status Encode(const XtShape&, std::span<const Job>) override {
    return absl::ResourceExhaustedError("the card is full");
  }
};

TEST(XtDevice, ItsErrorIsTheEncoders) {
  Matrices made = Make(3, nullptr);
  FailingDevice device;
  EXPECT_EQ(XtEncoder(BestXtIsa(), &device).Encode(made.jobs),
            absl::ResourceExhaustedError("the card is full"));
}

}  // namespace
}  // namespace hearth
