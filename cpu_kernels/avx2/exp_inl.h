// exp, sigmoid and silu of eight fp32 values; the same bits as scalar/exp.h.
#pragma once

#include "cpu_kernels/avx2/target.h"
#include "cpu_kernels/ops/exp_coefficients.h"

namespace hearth::avx2 {

HEARTH_AVX2_INLINE __m256 ExpOf(__m256 x) {
  // max and min return their second operand when one is NaN, so a NaN passes the clamp.
  __m256 v = _mm256_max_ps(_mm256_set1_ps(kExpMin), x);
  v = _mm256_min_ps(_mm256_set1_ps(kExpMax), v);
  const __m256 round = _mm256_set1_ps(kExpRound);
  const __m256 t = _mm256_add_ps(_mm256_mul_ps(v, _mm256_set1_ps(kLog2E)), round);
  const __m256 n = _mm256_sub_ps(t, round);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Hi), v);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Lo), r);
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExpC6), r, _mm256_set1_ps(kExpC5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC2));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i n_bits = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  const __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n_bits));
  return _mm256_or_ps(y, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

HEARTH_AVX2_INLINE __m256 SigmoidOf(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 negated = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(one, _mm256_add_ps(one, ExpOf(negated)));
}

HEARTH_AVX2_INLINE __m256 SiluOf(__m256 x) { return _mm256_mul_ps(x, SigmoidOf(x)); }

}  // namespace hearth::avx2
