// cpu_kernels/ops/matmul.h: the definition against a plain product, and every instruction set
// against the definition, bit for bit.
#include <cmath>

#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "pack/format/matrix_layout.h"
#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {
namespace {

class MatmulEachIsa : public EachIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, MatmulEachIsa, testing::ValuesIn(SupportedKernels()), IsaParamName);

// A Q8 matrix by its values; Bytes() is the interleaved layout of pack/format/matrix_layout.h.
struct Q8Matrix {
  uint32_t rows;
  uint32_t cols;
  std::vector<int32_t> value;   // (rows, cols), -128 to 127
  std::vector<uint16_t> scale;  // (rows, cols / 32), fp16

  static Q8Matrix Random(Prng* prng, uint32_t rows, uint32_t cols) {
    Q8Matrix m = {rows, cols, std::vector<int32_t>(size_t{rows} * cols),
                  std::vector<uint16_t>(size_t{rows} * cols / 32)};
    for (int32_t& v : m.value) v = static_cast<int32_t>(prng->Below(256)) - 128;
    for (uint16_t& s : m.scale) {
      do {  // any finite fp16: subnormal, zero and negative ones too
        s = static_cast<uint16_t>(prng->Below(65536));
      } while ((s & 0x7C00) == 0x7C00);
    }
    return m;
  }
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes(MatrixBytes(MatrixFormat::kQ8, rows, cols));
    const uint64_t band_bytes = Q8BandBytes(cols);
    for (uint32_t n = 0; n < BandCount(rows) * 16; ++n) {
      std::byte* band = bytes.data() + n / 16 * band_bytes;
      const uint32_t lane = n % 16;
      for (uint32_t k = 0; k < cols; ++k) {
        const int32_t v = n < rows ? value[size_t{n} * cols + k] : 0;
        band[(k / 4) * 64 + lane * 4 + k % 4] = static_cast<std::byte>(v + 128);
      }
      for (uint32_t b = 0; b < cols / 32; ++b) {
        const uint16_t s = n < rows ? scale[size_t{n} * (cols / 32) + b] : 0;
        std::memcpy(band + size_t{cols} * 16 + (b * 16 + lane) * 2, &s, 2);
      }
    }
    return bytes;
  }
};

MatmulQ8Args Q8Args(const std::vector<std::byte>& w, const QuantizedBuffer& x, uint32_t out_rows,
                    OutputBuffer* y, uint32_t y_stride) {
  return {.w = w.data(),
          .x = x.View(),
          .y = y->data(),
          .y_stride = y_stride,
          .out_rows = out_rows,
          .band_begin = 0,
          .band_end = BandCount(out_rows)};
}

TEST_P(MatmulEachIsa, Q8IsExactOnIntegers) {
  Prng prng(3);
  Q8Matrix m = Q8Matrix::Random(&prng, 20, 64);
  m.scale.assign(m.scale.size(), 0x3C00);  // 1.0
  std::vector<float> x(64);
  for (float& v : x) v = static_cast<float>(static_cast<int>(prng.Below(255)) - 127);
  x[0] = 127;  // both blocks then have the scale 1
  x[40] = -127;
  const QuantizedBuffer xq = Quantized(x, 1, 64);
  OutputBuffer y(20);
  kernels().matmul_q8(Q8Args(m.Bytes(), xq, 20, &y, 20));
  for (uint32_t n = 0; n < 20; ++n) {
    double sum = 0;
    for (uint32_t k = 0; k < 64; ++k) sum += m.value[n * 64 + k] * double{x[k]};
    EXPECT_EQ(y[n], sum) << n;
  }
}

TEST_P(MatmulEachIsa, Q8SameBitsAsTheDefinition) {
  Prng prng(4);
  for (const uint32_t cols : {32u, 64u, 256u, 320u, 640u, 2560u}) {
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      if (cols > 320 && rows > 9) continue;
      const uint32_t out_rows = 1 + static_cast<uint32_t>(prng.Below(100));
      const std::vector<std::byte> w = Q8Matrix::Random(&prng, out_rows, cols).Bytes();
      const QuantizedBuffer x = Quantized(WildFloats(&prng, size_t{rows} * cols), rows, cols);
      const uint32_t y_stride = out_rows + 3;
      OutputBuffer expected(size_t{rows} * y_stride);
      OutputBuffer actual(size_t{rows} * y_stride);
      MatmulQ8Args args = Q8Args(w, x, out_rows, &expected, y_stride);
      args.band_begin = static_cast<uint32_t>(prng.Below(args.band_end));
      ScalarKernels().matmul_q8(args);
      args.y = actual.data();
      kernels().matmul_q8(args);
      ExpectSameBits(expected, actual, absl::StrCat("q8 ", out_rows, "x", cols, " rows ", rows));
    }
  }
}

TEST_P(MatmulEachIsa, Q8SaturatedOperandsDoNotOverflow) {
  const uint32_t cols = 2560;
  Q8Matrix m = {16, cols, std::vector<int32_t>(16 * cols, -128),
                std::vector<uint16_t>(16 * cols / 32, 0x3C00)};
  for (uint32_t k = 0; k < cols; ++k) m.value[cols + k] = 127;
  for (const float sign : {1.0f, -1.0f}) {
    const QuantizedBuffer x = Quantized(std::vector<float>(cols, 127 * sign), 1, cols);
    OutputBuffer y(16);
    kernels().matmul_q8(Q8Args(m.Bytes(), x, 16, &y, 16));
    EXPECT_EQ(y[0], -128.0f * 127 * cols * sign);
    EXPECT_EQ(y[1], 127.0f * 127 * cols * sign);
  }
}

TEST_P(MatmulEachIsa, Q8WritesItsShareOnly) {
  Prng prng(5);
  const std::vector<std::byte> w = Q8Matrix::Random(&prng, 50, 32).Bytes();
  const QuantizedBuffer x = Quantized(RandomFloats(&prng, 3 * 32, 1), 3, 32);
  OutputBuffer y(3 * 64);
  MatmulQ8Args args = Q8Args(w, x, 50, &y, 64);
  args.band_begin = 2;
  kernels().matmul_q8(args);
  for (size_t i = 0; i < 3 * 64; ++i) {
    EXPECT_EQ(y.Written(i), i % 64 >= 32 && i % 64 < 50) << i;
  }
}

struct RowsCase {
  uint32_t out_rows;
  uint32_t cols;
  uint32_t rows;
};

std::vector<RowsCase> RowsCases() {
  std::vector<RowsCase> cases;
  for (const uint32_t cols :
       {1u, 15u, 16u, 17u, 32u, 48u, 64u, 80u, 256u, 320u, 336u, 640u, 2560u}) {
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      if (cols > 336 && rows > 9) continue;
      cases.push_back({1 + (cols * 7 + rows * 5) % 37, cols, rows});
    }
  }
  cases.push_back({9, 8192, 13});  // more activations than one cache group holds
  return cases;
}

using RowsKernel = Kernel<MatmulRowsArgs>;

void CheckRows(const RowsKernel& definition, const RowsKernel& kernel, size_t weight_bytes) {
  Prng prng(6);
  for (const RowsCase& c : RowsCases()) {
    std::vector<std::byte> w(size_t{c.out_rows} * c.cols * weight_bytes);
    const std::vector<float> values = WildFloats(&prng, size_t{c.out_rows} * c.cols);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bf16 = EncodeBf16(values[i]);
      const void* source = weight_bytes == 2 ? static_cast<const void*>(&bf16) : &values[i];
      std::memcpy(w.data() + i * weight_bytes, source, weight_bytes);
    }
    const uint32_t x_stride = c.cols + 5;
    const std::vector<float> x = WildFloats(&prng, size_t{c.rows} * x_stride);
    const uint32_t y_stride = c.out_rows + 2;
    OutputBuffer expected(size_t{c.rows} * y_stride);
    OutputBuffer actual(size_t{c.rows} * y_stride);
    MatmulRowsArgs args = {.w = w.data(),
                           .x = x.data(),
                           .x_stride = x_stride,
                           .rows = c.rows,
                           .cols = c.cols,
                           .y = expected.data(),
                           .y_stride = y_stride,
                           .row_begin = static_cast<uint32_t>(prng.Below(c.out_rows)),
                           .row_end = c.out_rows};
    definition(args);
    args.y = actual.data();
    kernel(args);
    ExpectSameBits(expected, actual, absl::StrCat(c.out_rows, "x", c.cols, " rows ", c.rows));
    for (size_t i = 0; i < size_t{c.rows} * y_stride; ++i) {
      const size_t n = i % y_stride;
      ASSERT_EQ(actual.Written(i), n >= args.row_begin && n < args.row_end) << i;
    }
  }
}

TEST_P(MatmulEachIsa, Bf16SameBitsAsTheDefinition) {
  CheckRows(ScalarKernels().matmul_bf16, kernels().matmul_bf16, 2);
}

TEST_P(MatmulEachIsa, F32SameBitsAsTheDefinition) {
  CheckRows(ScalarKernels().matmul_f32, kernels().matmul_f32, 4);
}

TEST(MatmulDefinition, F32AgreesWithDoublePrecision) {
  Prng prng(7);
  const std::vector<float> w = RandomFloats(&prng, 5 * 100, 1);
  const std::vector<float> x = RandomFloats(&prng, 2 * 100, 1);
  OutputBuffer y(2 * 5);
  ScalarKernels().matmul_f32({.w = reinterpret_cast<const std::byte*>(w.data()),
                              .x = x.data(),
                              .x_stride = 100,
                              .rows = 2,
                              .cols = 100,
                              .y = y.data(),
                              .y_stride = 5,
                              .row_begin = 0,
                              .row_end = 5});
  for (size_t t = 0; t < 2; ++t) {
    for (size_t n = 0; n < 5; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (size_t k = 0; k < 100; ++k) {
        sum += double{w[n * 100 + k]} * x[t * 100 + k];
        magnitude += std::fabs(double{w[n * 100 + k]} * x[t * 100 + k]);
      }
      EXPECT_NEAR(y[t * 5 + n], sum, magnitude * 12 * 0x1p-24);  // 7 additions a lane, 4 across
    }
  }
}

}  // namespace
}  // namespace hearth
