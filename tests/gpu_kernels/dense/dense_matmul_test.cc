// LaunchDenseMatmul on a GPU: against fp64 on the values that the kernels read, row by row
// independence of its bits, and the bytes around every output.
#include "gpu_kernels/ops/dense/dense_matmul.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/dense/dense_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

constexpr MatrixFormat kQ8 = MatrixFormat::kQ8;
constexpr MatrixFormat kBf16 = MatrixFormat::kBf16;
constexpr MatrixFormat kF32 = MatrixFormat::kF32;

struct Shape {
  MatrixFormat format;
  uint32_t rows;
};
struct Launch {
  uint32_t cols;
  std::vector<Shape> shapes;
};

// Launches of the models, and odd ones: padded bands, a last chunk that is short, one segment and
// the most, units that do not fill a team.
std::vector<Launch> Launches() {
  return {
      {2560, {{kQ8, 1024}, {kQ8, 608}, {kBf16, 48}, {kBf16, 48}}},
      {2560, {{kQ8, 640}, {kBf16, 512}, {kQ8, 640}, {kBf16, 1}}},
      {6144, {{kQ8, 256}}},
      {10240, {{kQ8, 320}, {kBf16, 4}}},
      {320, {{kQ8, 10240}}},
      {640, {{kQ8, 2560}}},
      {256, {{kQ8, 520}, {kF32, 7}, {kBf16, 130}, {kQ8, 1}, {kF32, 64}, {kQ8, 16}}},
      {64, {{kQ8, 256}, {kF32, 33}}},
      {32, {{kQ8, 17}}},
      {8, {{kF32, 5}, {kBf16, 3}}},
      {1048, {{kBf16, 19}, {kF32, 6}}},
      {1312, {{kQ8, 49}, {kBf16, 5}}},
      {9248, {{kQ8, 33}}},
      {12320, {{kQ8, 31}, {kBf16, 2}}},
  };
}

double ActivateExactly(const MatmulOutput& o, double v) {
  if (o.activation == Activation::kNone) return v;
  v *= static_cast<double>(o.scale_in);
  const double sigmoid = 1 / (1 + std::exp(-v));
  return o.activation == Activation::kSilu ? v * sigmoid
                                           : static_cast<double>(o.scale_out) * sigmoid;
}

class DenseMatmul : public OnGpu {
 protected:
  static std::vector<HostMatrix> MatricesOf(Prng* prng, const Launch& launch) {
    std::vector<HostMatrix> matrices;
    for (const Shape& shape : launch.shapes) {
      matrices.push_back(HostMatrix::Random(prng, shape.format, shape.rows, launch.cols));
    }
    return matrices;
  }
  // y of every matrix after one launch of rows [first, first + count) of a poisoned y.
  std::vector<std::vector<float>> Run(const DenseOnGpu& on_gpu, uint32_t first, uint32_t count) {
    std::vector<std::vector<float>> answers;
    const DenseMatmulArgs args = on_gpu.Args(first, count);
    absl::Status status = on_gpu.Poison(stream());
    if (status.ok()) status = LaunchDenseMatmul(args, stream().view());
    for (uint32_t i = 0; status.ok() && i < args.output_count; ++i) {
      status = on_gpu.Read(i, &answers.emplace_back(), stream());
    }
    EXPECT_TRUE(status.ok()) << status;
    return answers;
  }
};

// The values that a matrix of this format reads, as doubles: (rows, cols).
std::vector<double> RowsRead(const HostMatrix& w, const std::vector<float>& x, uint32_t rows) {
  if (w.format != kQ8) return {x.begin(), x.end()};
  const QuantizedBuffer xq = Quantized(x, rows, w.cols);
  std::vector<double> values(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    values[i] = static_cast<double>(xq.scale[i / kQ8BlockValues]) * xq.q[i];
  }
  return values;
}

// Rows [0, rows) of y against fp64: 1e-5 of the norms; guards and padding unwritten.
void ExpectProduct(const HostMatrix& w, const std::vector<float>& x, uint32_t rows,
                   const MatmulOutput& output, const std::vector<float>& y,
                   const std::string& what) {
  const std::vector<double> values = RowsRead(w, x, rows);
  const uint32_t stride = DenseOnGpu::Stride(w.rows);
  double difference = 0;
  double norm = 0;
  std::vector<bool> expected_written(y.size());
  std::vector<double> row(w.cols);
  for (uint32_t n = 0; n < w.rows; ++n) {
    for (uint32_t k = 0; k < w.cols; ++k) row[k] = w.Value(n, k);
    for (uint32_t t = 0; t < rows; ++t) {
      double sum = 0;
      for (uint32_t k = 0; k < w.cols; ++k) sum += row[k] * values[size_t{t} * w.cols + k];
      const double exact = ActivateExactly(output, sum);
      const size_t at = kGuardFloats + size_t{t} * stride + n;
      expected_written[at] = true;
      difference += (y[at] - exact) * (y[at] - exact);
      norm += exact * exact;
    }
  }
  EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << what;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool written = std::bit_cast<uint32_t>(y[i]) != kUnwrittenBits;
    ASSERT_EQ(written, expected_written[i]) << what << ", float " << i;
  }
}

TEST_F(DenseMatmul, IsTheProductAtOneToSixteenRows) {
  Prng prng(601);
  for (const Launch& launch : Launches()) {
    const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
    for (const uint32_t rows : {1u, 2u, 4u, 7u, 8u, 13u, 16u}) {
      if (launch.cols > 2560 && rows != 2 && rows != 16) continue;
      const std::vector<float> x = RandomFloats(&prng, size_t{rows} * launch.cols, 1);
      absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, rows, stream());
      ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
      const std::vector<std::vector<float>> answers = Run(*on_gpu, 0, rows);
      if (HasFailure()) return;
      for (size_t i = 0; i < matrices.size(); ++i) {
        const HostMatrix& w = matrices[i];
        ExpectProduct(w, x, rows, *on_gpu->output(i), answers[i],
                      absl::StrCat("cols ", w.cols, " rows of w ", w.rows, " format ",
                                   static_cast<uint32_t>(w.format), " rows ", rows));
      }
    }
  }
}

TEST_F(DenseMatmul, AppliesTheActivationOfEachOutput) {
  Prng prng(602);
  const Launch launch = {640, {{kQ8, 64}, {kBf16, 20}, {kQ8, 33}, {kF32, 8}}};
  const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
  const std::vector<float> x = RandomFloats(&prng, size_t{5} * launch.cols, 3);
  absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, 5, stream());
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  for (size_t i = 0; i < 4; ++i) {
    on_gpu->output(i)->activation = i % 2 == 0 ? Activation::kSilu : Activation::kSigmoid;
    on_gpu->output(i)->scale_in = i < 2 ? 1.0f : 0.25f;
    on_gpu->output(i)->scale_out = 2.0f;
  }
  const std::vector<std::vector<float>> answers = Run(*on_gpu, 0, 5);
  if (HasFailure()) return;
  for (size_t i = 0; i < 4; ++i) {
    ExpectProduct(matrices[i], x, 5, *on_gpu->output(i), answers[i], absl::StrCat("output ", i));
  }
}

TEST_F(DenseMatmul, BitsOfARowDependOnNothingElse) {
  // Any number of rows, any place among them, any company of matrices: the same bits.
  Prng prng(603);
  for (const Launch& launch : Launches()) {
    const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
    const std::vector<float> x = RandomFloats(&prng, size_t{16} * launch.cols, 1);
    absl::StatusOr<DenseOnGpu> together = DenseOnGpu::Create(matrices, x, 16, stream());
    ASSERT_TRUE(together.ok()) << together.status();
    const std::vector<std::vector<float>> all = Run(*together, 0, 16);
    if (HasFailure()) return;
    for (const auto& [first, count] : {std::pair{0u, 1u}, {3u, 1u}, {4u, 4u}, {0u, 8u}, {8u, 5u}}) {
      if (launch.cols % 32 != 0 && first > 0) continue;  // x of a later row is not on 16 bytes
      const std::vector<std::vector<float>> some = Run(*together, first, count);
      if (HasFailure()) return;
      for (size_t i = 0; i < matrices.size(); ++i) {
        const uint32_t stride = DenseOnGpu::Stride(matrices[i].rows);
        const size_t at = kGuardFloats + size_t{first} * stride;
        for (uint32_t t = 0; t < count; ++t) {
          ASSERT_EQ(std::memcmp(&some[i][at + size_t{t} * stride], &all[i][at + size_t{t} * stride],
                                matrices[i].rows * 4),
                    0)
              << "cols " << launch.cols << " output " << i << " row " << first + t << " of "
              << count;
        }
      }
    }
    for (size_t i = 0; i < matrices.size(); ++i) {
      absl::StatusOr<DenseOnGpu> alone = DenseOnGpu::Create({matrices[i]}, x, 16, stream());
      ASSERT_TRUE(alone.ok()) << alone.status();
      const std::vector<std::vector<float>> one = Run(*alone, 0, 16);
      if (HasFailure()) return;
      EXPECT_EQ(std::memcmp(one[0].data(), all[i].data(), one[0].size() * 4), 0)
          << "cols " << launch.cols << " output " << i;
    }
  }
}

TEST_F(DenseMatmul, RefusesWhatDoesNotFit) {
  Prng prng(604);
  const std::vector<HostMatrix> matrices = MatricesOf(&prng, {64, {{kQ8, 16}}});
  const std::vector<float> x = RandomFloats(&prng, 64, 1);
  absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, 1, stream());
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  DenseMatmulArgs args = on_gpu->Args(0, 1);
  args.rows = kMatmulRowsMax + 1;
  EXPECT_EQ(LaunchDenseMatmul(args, stream().view()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
