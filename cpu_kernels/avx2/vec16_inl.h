// Sixteen fp32 lanes on two AVX registers: the vector under the shared bodies, ops/*_inl.h.
// A `part` is the first n lanes, 1 <= n <= 16; memory beyond it is not touched.
#pragma once

#include <cstdint>

#include "cpu_kernels/avx2/exp_inl.h"
#include "cpu_kernels/avx2/target.h"

#define HEARTH_ISA avx2
#define HEARTH_ISA_KERNEL HEARTH_AVX2
#define HEARTH_ISA_INLINE HEARTH_AVX2_INLINE

namespace hearth::avx2 {

// Registers that a tile may take, as rows of Vec16 (16 registers here, two for each Vec16).
inline constexpr int kTileVecs = 1;
inline constexpr int kSlabVecs = 4;

struct Vec16 {
  __m256 lo, hi;
};

HEARTH_AVX2_INLINE __m256i PartMask(uint32_t n, uint32_t first) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n) - static_cast<int>(first)), lane);
}
HEARTH_AVX2_INLINE Vec16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HEARTH_AVX2_INLINE Vec16 Broadcast(float v) {
  const __m256 all = _mm256_set1_ps(v);
  return {all, all};
}
HEARTH_AVX2_INLINE Vec16 Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
HEARTH_AVX2_INLINE Vec16 LoadPart(const float* p, uint32_t n) {  // zero beyond the part
  if (__builtin_expect(n >= 16, 1)) return Load(p);
  const __m256 lo = _mm256_maskload_ps(p, PartMask(n, 0));
  return {lo, n > 8 ? _mm256_maskload_ps(p + 8, PartMask(n, 8)) : _mm256_setzero_ps()};
}
HEARTH_AVX2_INLINE void Store(float* p, Vec16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
HEARTH_AVX2_INLINE void StorePart(float* p, Vec16 v, uint32_t n) {
  if (__builtin_expect(n >= 16, 1)) return Store(p, v);
  _mm256_maskstore_ps(p, PartMask(n, 0), v.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, PartMask(n, 8), v.hi);
}

HEARTH_AVX2_INLINE Vec16 Add(Vec16 a, Vec16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HEARTH_AVX2_INLINE Vec16 Sub(Vec16 a, Vec16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
HEARTH_AVX2_INLINE Vec16 Mul(Vec16 a, Vec16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
HEARTH_AVX2_INLINE Vec16 Div(Vec16 a, Vec16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
// a > b ? a : b
HEARTH_AVX2_INLINE Vec16 Max(Vec16 a, Vec16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
// a * b + c; a * b - c; c - a * b: one rounding
HEARTH_AVX2_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
HEARTH_AVX2_INLINE Vec16 FmaMinus(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}
HEARTH_AVX2_INLINE Vec16 FmaFrom(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
// Lanes beyond the part stay c.
HEARTH_AVX2_INLINE Vec16 FmaPart(Vec16 a, Vec16 b, Vec16 c, uint32_t n) {
  const Vec16 sum = Fma(a, b, c);
  return {_mm256_blendv_ps(c.lo, sum.lo, _mm256_castsi256_ps(PartMask(n, 0))),
          _mm256_blendv_ps(c.hi, sum.hi, _mm256_castsi256_ps(PartMask(n, 8)))};
}
HEARTH_AVX2_INLINE Vec16 Exp(Vec16 v) { return {ExpOf(v.lo), ExpOf(v.hi)}; }
HEARTH_AVX2_INLINE Vec16 Sigmoid(Vec16 v) { return {SigmoidOf(v.lo), SigmoidOf(v.hi)}; }
HEARTH_AVX2_INLINE Vec16 Silu(Vec16 v) { return {SiluOf(v.lo), SiluOf(v.hi)}; }

// Lanes j and j+8 added, then j and j+4.
HEARTH_AVX2_INLINE __m128 AddToFour(Vec16 v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

}  // namespace hearth::avx2
