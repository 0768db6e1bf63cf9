// Sixteen fp32 lanes on one AVX-512 register: the vector under the shared bodies, ops/*_inl.h.
// A `part` is the first n lanes, 1 <= n <= 16; memory beyond it is not touched.
#pragma once

#include <cstdint>

#include "cpu_kernels/avx512/exp_inl.h"
#include "cpu_kernels/avx512/target.h"

#define HEARTH_ISA avx512
#define HEARTH_ISA_KERNEL HEARTH_AVX512
#define HEARTH_ISA_INLINE HEARTH_AVX512_INLINE

namespace hearth::avx512 {

// Registers that a tile may take, as rows of Vec16 (32 registers here).
inline constexpr int kTileVecs = 4;
inline constexpr int kSlabVecs = 8;

using Vec16 = __m512;

HEARTH_AVX512_INLINE __mmask16 PartMask(uint32_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
HEARTH_AVX512_INLINE Vec16 Zero() { return _mm512_setzero_ps(); }
HEARTH_AVX512_INLINE Vec16 Broadcast(float v) { return _mm512_set1_ps(v); }
HEARTH_AVX512_INLINE Vec16 Load(const float* p) { return _mm512_loadu_ps(p); }
HEARTH_AVX512_INLINE Vec16 LoadPart(const float* p, uint32_t n) {  // zero beyond the part
  if (__builtin_expect(n >= 16, 1)) return _mm512_loadu_ps(p);
  return _mm512_maskz_loadu_ps(PartMask(n), p);
}
HEARTH_AVX512_INLINE void Store(float* p, Vec16 v) { _mm512_storeu_ps(p, v); }
HEARTH_AVX512_INLINE void StorePart(float* p, Vec16 v, uint32_t n) {
  if (__builtin_expect(n >= 16, 1)) return _mm512_storeu_ps(p, v);
  _mm512_mask_storeu_ps(p, PartMask(n), v);
}

HEARTH_AVX512_INLINE Vec16 Add(Vec16 a, Vec16 b) { return _mm512_add_ps(a, b); }
HEARTH_AVX512_INLINE Vec16 Sub(Vec16 a, Vec16 b) { return _mm512_sub_ps(a, b); }
HEARTH_AVX512_INLINE Vec16 Mul(Vec16 a, Vec16 b) { return _mm512_mul_ps(a, b); }
HEARTH_AVX512_INLINE Vec16 Div(Vec16 a, Vec16 b) { return _mm512_div_ps(a, b); }
// a > b ? a : b
HEARTH_AVX512_INLINE Vec16 Max(Vec16 a, Vec16 b) { return _mm512_max_ps(a, b); }
// a * b + c; a * b - c; c - a * b: one rounding
HEARTH_AVX512_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) { return _mm512_fmadd_ps(a, b, c); }
HEARTH_AVX512_INLINE Vec16 FmaMinus(Vec16 a, Vec16 b, Vec16 c) { return _mm512_fmsub_ps(a, b, c); }
HEARTH_AVX512_INLINE Vec16 FmaFrom(Vec16 a, Vec16 b, Vec16 c) { return _mm512_fnmadd_ps(a, b, c); }
// Lanes beyond the part stay c.
HEARTH_AVX512_INLINE Vec16 FmaPart(Vec16 a, Vec16 b, Vec16 c, uint32_t n) {
  return _mm512_mask3_fmadd_ps(a, b, c, PartMask(n));
}
HEARTH_AVX512_INLINE Vec16 Exp(Vec16 v) { return ExpOf(v); }
HEARTH_AVX512_INLINE Vec16 Sigmoid(Vec16 v) { return SigmoidOf(v); }
HEARTH_AVX512_INLINE Vec16 Silu(Vec16 v) { return SiluOf(v); }

// Lanes j and j+8 added, then j and j+4.
HEARTH_AVX512_INLINE __m128 AddToFour(Vec16 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

}  // namespace hearth::avx512
