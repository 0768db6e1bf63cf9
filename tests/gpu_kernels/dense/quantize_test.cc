// LaunchQuantizeRows and LaunchRotateQuantizeRows against every row of the CPU's kernel table, bit
// for bit.
#include <cmath>
#include <limits>

#include "gpu_kernels/ops/dense/quantize_rows.h"
#include "gpu_kernels/ops/dense/rotate_quantize.h"
#include "tests/gpu_kernels/dense/dense_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

constexpr int32_t kUnwrittenInt = 0x5A5A5A5A;

class QuantizeOnGpu : public OnGpu {};

// Scales may be NaN: of any payload, on both sides.
void ExpectSameScales(const std::vector<float>& expected, const std::vector<float>& actual,
                      uint32_t cols) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != expected[i] && actual[i] != actual[i]) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(actual[i]))
        << "cols " << cols << " scale " << i << ": " << actual[i] << ", the CPU gives "
        << expected[i];
  }
}

// Rows of every kind; the last has an infinity and a NaN.
std::vector<float> RowsOf(Prng* prng, uint32_t rows, uint32_t stride) {
  std::vector<float> x = WildFloats(prng, size_t{rows} * stride);
  for (uint32_t k = 0; k < stride && rows > 3; ++k) {
    x[size_t{stride} + k] *= 1e-42f;
    x[size_t{2} * stride + k] *= 3e34f;
  }
  if (rows > 4) {
    x[size_t{4} * stride] = std::numeric_limits<float>::infinity();
    x[size_t{4} * stride + stride / 2] = std::numeric_limits<float>::quiet_NaN();
  }
  return x;
}

TEST_F(QuantizeOnGpu, BlocksHaveTheBitsOfTheCpu) {
  Prng prng(611);
  for (const uint32_t cols : {32u, 64u, 256u, 320u, 640u, 2560u, 6144u, 10240u, 40u, 1u, 33u}) {
    for (const uint32_t rows : {1u, 5u, 19u}) {
      const uint32_t stride = cols + (cols % 64 == 0 ? 4 : 7);  // in fours and not
      const std::vector<float> x = RowsOf(&prng, rows, stride);
      QuantizedBuffer actual(rows, cols);
      auto dx = DeviceCopy(x, stream());
      auto dq = DeviceCopy(actual.q, stream());
      auto dscale = DeviceCopy(actual.scale, stream());
      auto dsum = DeviceCopy(actual.sum16, stream());
      ASSERT_TRUE(dx.ok() && dq.ok() && dscale.ok() && dsum.ok());
      ASSERT_TRUE(FillBytes(*dq, std::byte{0x5A}, stream().view()).ok());
      ASSERT_TRUE(FillBytes(*dscale, std::byte{0x5A}, stream().view()).ok());
      ASSERT_TRUE(FillBytes(*dsum, std::byte{0x5A}, stream().view()).ok());
      const absl::Status status =
          LaunchQuantizeRows({.x = reinterpret_cast<const float*>(dx->data()),
                              .x_stride = stride,
                              .rows = rows,
                              .cols = cols,
                              .q = reinterpret_cast<int8_t*>(dq->data()),
                              .scale = reinterpret_cast<float*>(dscale->data()),
                              .sum16 = reinterpret_cast<int32_t*>(dsum->data())},
                             stream().view());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(ReadBack(*dq, &actual.q, stream()).ok());
      ASSERT_TRUE(ReadBack(*dscale, &actual.scale, stream()).ok());
      ASSERT_TRUE(ReadBack(*dsum, &actual.sum16, stream()).ok());
      for (const CpuKernels* kernels : SupportedKernels()) {
        QuantizedBuffer expected(rows, cols);
        QuantizeRowsArgs args = expected.ArgsFor(x);
        args.x_stride = stride;
        kernels->quantize_rows(args);
        EXPECT_EQ(expected.q, actual.q) << "cols " << cols << " rows " << rows;
        EXPECT_EQ(expected.sum16, actual.sum16) << "cols " << cols << " rows " << rows;
        ExpectSameScales(expected.scale, actual.scale, cols);
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(QuantizeOnGpu, RotatedRowsHaveTheBitsOfTheCpu) {
  Prng prng(612);
  for (const uint32_t cols :
       {32u, 64u, 96u, 128u, 192u, 256u, 320u, 640u, 2560u, 2592u, 6144u, kRotateQuantizeColsMax}) {
    for (const uint32_t rows : {1u, 5u, 19u}) {
      const uint32_t stride = cols + 4;
      const std::vector<float> x = RowsOf(&prng, rows, stride);
      std::vector<int8_t> q(size_t{rows} * cols, int8_t{0x5A});
      std::vector<float> scale(rows, -5);
      std::vector<int32_t> sum(rows, kUnwrittenInt);
      auto dx = DeviceCopy(x, stream());
      auto dq = DeviceCopy(q, stream());
      auto dscale = DeviceCopy(scale, stream());
      auto dsum = DeviceCopy(sum, stream());
      ASSERT_TRUE(dx.ok() && dq.ok() && dscale.ok() && dsum.ok());
      const absl::Status status =
          LaunchRotateQuantizeRows({.x = reinterpret_cast<const float*>(dx->data()),
                                    .x_stride = stride,
                                    .rows = rows,
                                    .cols = cols,
                                    .scratch = nullptr,
                                    .q = reinterpret_cast<int8_t*>(dq->data()),
                                    .scale = reinterpret_cast<float*>(dscale->data()),
                                    .sum = reinterpret_cast<int32_t*>(dsum->data())},
                                   stream().view());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(ReadBack(*dq, &q, stream()).ok());
      ASSERT_TRUE(ReadBack(*dscale, &scale, stream()).ok());
      ASSERT_TRUE(ReadBack(*dsum, &sum, stream()).ok());
      for (const CpuKernels* kernels : SupportedKernels()) {
        std::vector<float> scratch(cols);
        std::vector<int8_t> expected_q(q.size());
        std::vector<float> expected_scale(rows);
        std::vector<int32_t> expected_sum(rows);
        kernels->rotate_quantize_rows({.x = x.data(),
                                       .x_stride = stride,
                                       .rows = rows,
                                       .cols = cols,
                                       .scratch = scratch.data(),
                                       .q = expected_q.data(),
                                       .scale = expected_scale.data(),
                                       .sum = expected_sum.data()});
        EXPECT_EQ(expected_q, q) << "cols " << cols << " rows " << rows;
        EXPECT_EQ(expected_sum, sum) << "cols " << cols << " rows " << rows;
        ExpectSameScales(expected_scale, scale, cols);
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(QuantizeOnGpu, RefusesWhatDoesNotFit) {
  EXPECT_EQ(LaunchQuantizeRows({}, stream().view()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      LaunchRotateQuantizeRows({.x_stride = 40, .rows = 1, .cols = 40}, stream().view()).code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
