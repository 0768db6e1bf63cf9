// cpu_kernels/ops/activation.h: the rules of the definition, and every instruction set against it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {
namespace {

class QuantizeEachIsa : public EachIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, QuantizeEachIsa, testing::ValuesIn(SupportedKernels()), IsaParamName);

TEST_P(QuantizeEachIsa, LargestMagnitudeBecomes127AndTiesGoToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = -127;  // s = 1
  x[1] = 2.5f;
  x[2] = 3.5f;
  x[3] = -2.5f;
  x[17] = 126.5f;
  QuantizedBuffer out(1, 32);
  kernels().quantize_rows(out.ArgsFor(x));
  EXPECT_EQ(out.scale[0], 1.0f);
  EXPECT_EQ(out.q[0], -127);
  EXPECT_EQ(out.q[1], 2);
  EXPECT_EQ(out.q[2], 4);
  EXPECT_EQ(out.q[3], -2);
  EXPECT_EQ(out.q[17], 126);
  EXPECT_EQ(out.sum16[0], -127 + 2 + 4 - 2);
  EXPECT_EQ(out.sum16[1], 126);
}

TEST_P(QuantizeEachIsa, ZeroBlockGivesZeroScaleAndZeroCodes) {
  const std::vector<float> x(64, -0.0f);
  QuantizedBuffer out(1, 64);
  out.q.assign(64, 7);
  out.scale.assign(2, 7);
  out.sum16.assign(4, 7);
  kernels().quantize_rows(out.ArgsFor(x));
  EXPECT_EQ(out.q, std::vector<int8_t>(64, 0));
  EXPECT_EQ(out.scale, std::vector<float>(2, 0.0f));
  EXPECT_EQ(out.sum16, std::vector<int32_t>(4, 0));
}

TEST_P(QuantizeEachIsa, ScalesHaveTwentyBitsAndTinyOnesAreZero) {
  std::vector<float> x(96, 1.0f);
  std::fill_n(x.begin() + 32, 32, kScaleMin * 127);
  std::fill_n(x.begin() + 64, 32, std::nextafter(kScaleMin * 127, 0.0f));
  x[65] = std::numeric_limits<float>::denorm_min();
  QuantizedBuffer out(1, 96);
  kernels().quantize_rows(out.ArgsFor(x));
  const auto exact = std::bit_cast<uint32_t>(1.0f / 127.0f);
  ASSERT_NE(exact & ~kScaleMantissaMask, 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(out.scale[0]), exact & kScaleMantissaMask);
  EXPECT_EQ(out.q[0], 127);
  EXPECT_EQ(out.scale[1], kScaleMin);
  EXPECT_EQ(out.q[32], 127);
  EXPECT_EQ(out.scale[2], 0.0f);
  EXPECT_EQ(out.q[64], 0);
}

TEST_P(QuantizeEachIsa, NanAndInfinityMarkTheScale) {
  std::vector<float> x(64, 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[40] = std::numeric_limits<float>::infinity();
  QuantizedBuffer out(1, 64);
  kernels().quantize_rows(out.ArgsFor(x));
  EXPECT_TRUE(std::isnan(out.scale[0]));
  EXPECT_TRUE(std::isinf(out.scale[1]));
}

TEST_P(QuantizeEachIsa, ShortLastBlockIsFilledWithZeros) {
  const std::vector<float> x(48, 3.0f);
  QuantizedBuffer out(1, 48);
  out.q.assign(64, 7);
  kernels().quantize_rows(out.ArgsFor(x));
  EXPECT_EQ(out.q[47], 127);
  for (size_t i = 48; i < 64; ++i) EXPECT_EQ(out.q[i], 0) << i;
  EXPECT_EQ(out.sum16[2], 127 * 16);
  EXPECT_EQ(out.sum16[3], 0);
}

TEST_P(QuantizeEachIsa, SameBitsAsTheDefinition) {
  Prng prng(1);
  for (const uint32_t cols :
       {16u, 32u, 33u, 47u, 48u, 63u, 64u, 80u, 256u, 320u, 336u, 640u, 2560u}) {
    for (const uint32_t rows : {1u, 3u, 9u}) {
      const std::vector<float> x = WildFloats(&prng, size_t{rows} * cols);
      const QuantizedBuffer expected = Quantized(x, rows, cols);
      QuantizedBuffer actual(rows, cols);
      kernels().quantize_rows(actual.ArgsFor(x));
      EXPECT_EQ(expected.q, actual.q) << rows << "x" << cols;
      EXPECT_EQ(expected.scale, actual.scale) << rows << "x" << cols;
      EXPECT_EQ(expected.sum16, actual.sum16) << rows << "x" << cols;
    }
  }
}

TEST_P(QuantizeEachIsa, RowStrideIsHonoured) {
  Prng prng(2);
  const std::vector<float> x = RandomFloats(&prng, 3 * 100, 1.0f);
  QuantizedBuffer strided(3, 64);
  QuantizeRowsArgs args = strided.ArgsFor(x);
  args.x_stride = 100;
  kernels().quantize_rows(args);
  for (uint32_t t = 0; t < 3; ++t) {
    const std::vector<float> row(x.begin() + t * 100, x.begin() + t * 100 + 64);
    const QuantizedBuffer alone = Quantized(row, 1, 64);
    EXPECT_EQ(0, std::memcmp(alone.q.data(), strided.q.data() + t * 64, 64)) << t;
  }
}

}  // namespace
}  // namespace hearth
