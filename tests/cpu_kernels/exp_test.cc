// The one exp (cpu_kernels/ops/exp_coefficients.h): its error against double precision, its edges,
// and the vector forms against the scalar one over a sample of all fp32 values.
#include <bit>
#include <cmath>
#include <limits>

#include "cpu_kernels/avx2/exp_inl.h"
#include "cpu_kernels/avx512/exp_inl.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "cpu_kernels/scalar/exp.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

constexpr uint64_t kStep = 4099;  // prime: every exponent, all kinds of mantissas

double UlpError(float actual, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(actual - exact) / std::ldexp(1.0, exponent - 24);
}

TEST(Exp, AtMostTwoUlpInsideTheClamp) {
  double largest = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep) {
    const auto v = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(v >= kExpMin && v <= kExpMax)) continue;
    largest = std::max(largest, UlpError(scalar::ExpOf(v), std::exp(double{v})));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, 1);  // 0.88 measured over all values
}

TEST(Exp, EdgesAreClampedAndNanStays) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(scalar::ExpOf(0.0f), 1.0f);
  EXPECT_EQ(scalar::ExpOf(-0.0f), 1.0f);
  EXPECT_EQ(scalar::ExpOf(infinity), scalar::ExpOf(kExpMax));
  EXPECT_EQ(scalar::ExpOf(-infinity), scalar::ExpOf(kExpMin));
  EXPECT_TRUE(std::isnormal(scalar::ExpOf(kExpMin)));
  EXPECT_TRUE(std::isnormal(scalar::ExpOf(kExpMax)));
  EXPECT_TRUE(std::isnan(scalar::ExpOf(std::bit_cast<float>(0x7FC00001u))));
  EXPECT_EQ(scalar::SigmoidOf(0.0f), 0.5f);
  EXPECT_EQ(scalar::SigmoidOf(100.0f), 1.0f);
  EXPECT_EQ(scalar::SiluOf(0.0f), 0.0f);
}

// Lanes of one value each of exp, sigmoid and silu.
struct Results {
  float exp[16];
  float sigmoid[16];
  float silu[16];
};

HEARTH_AVX2 void RunAvx2(const float* x, Results* out) {
  for (int i = 0; i < 16; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    _mm256_storeu_ps(out->exp + i, avx2::ExpOf(v));
    _mm256_storeu_ps(out->sigmoid + i, avx2::SigmoidOf(v));
    _mm256_storeu_ps(out->silu + i, avx2::SiluOf(v));
  }
}

HEARTH_AVX512 void RunAvx512(const float* x, Results* out) {
  const __m512 v = _mm512_loadu_ps(x);
  _mm512_storeu_ps(out->exp, avx512::ExpOf(v));
  _mm512_storeu_ps(out->sigmoid, avx512::SigmoidOf(v));
  _mm512_storeu_ps(out->silu, avx512::SiluOf(v));
}

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void CheckAgainstScalar(void (*run)(const float*, Results*)) {
  int differences = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep * 16) {
    float x[16];
    for (uint64_t i = 0; i < 16; ++i) {
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(bits + i * kStep));
    }
    Results results;
    run(x, &results);
    for (int i = 0; i < 16; ++i) {
      differences += !Same(results.exp[i], scalar::ExpOf(x[i]));
      differences += !Same(results.sigmoid[i], scalar::SigmoidOf(x[i]));
      differences += !Same(results.silu[i], scalar::SiluOf(x[i]));
    }
  }
  EXPECT_EQ(differences, 0);
}

TEST(Exp, Avx2SameBitsAsScalar) {
  if (!DetectCpuFeatures().avx2) GTEST_SKIP() << "no AVX2";
  CheckAgainstScalar(RunAvx2);
}

TEST(Exp, Avx512SameBitsAsScalar) {
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "no AVX-512";
  CheckAgainstScalar(RunAvx512);
}

}  // namespace
}  // namespace hearth
