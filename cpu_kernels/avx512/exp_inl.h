// exp, sigmoid and silu of sixteen fp32 values; the same bits as scalar/exp.h.
#pragma once

#include "cpu_kernels/avx512/target.h"
#include "cpu_kernels/ops/exp_coefficients.h"

namespace hearth::avx512 {

HEARTH_AVX512_INLINE __m512 ExpOf(__m512 x) {
  // max and min return their second operand when one is NaN, so a NaN passes the clamp.
  __m512 v = _mm512_max_ps(_mm512_set1_ps(kExpMin), x);
  v = _mm512_min_ps(_mm512_set1_ps(kExpMax), v);
  const __m512 round = _mm512_set1_ps(kExpRound);
  const __m512 t = _mm512_add_ps(_mm512_mul_ps(v, _mm512_set1_ps(kLog2E)), round);
  const __m512 n = _mm512_sub_ps(t, round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2Hi), v);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2Lo), r);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExpC6), r, _mm512_set1_ps(kExpC5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC2));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);  // exact inside the clamp; a NaN stays one
}

HEARTH_AVX512_INLINE __m512 SigmoidOf(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 negated = _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
  return _mm512_div_ps(one, _mm512_add_ps(one, ExpOf(negated)));
}

HEARTH_AVX512_INLINE __m512 SiluOf(__m512 x) { return _mm512_mul_ps(x, SigmoidOf(x)); }

}  // namespace hearth::avx512
