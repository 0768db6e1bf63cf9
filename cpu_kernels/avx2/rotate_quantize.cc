// Rows into the rotated space and to int8. Contract: cpu_kernels/ops/xt.h; definition:
// cpu_kernels/scalar/quantize.cc.
#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/register_inl.h"

namespace hearth::avx2 {
namespace {

using RegisterBits = __m256i;

HEARTH_AVX2_INLINE Register RegisterLoad(const float* from) { return _mm256_loadu_ps(from); }
HEARTH_AVX2_INLINE Register RegisterSub(Register a, Register b) { return _mm256_sub_ps(a, b); }
// Lanes whose bit is set change their sign.
HEARTH_AVX2_INLINE Register RegisterNegate(Register v, uint32_t lanes) {
  const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i tops = _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int32_t>(lanes)), to_top);
  const __m256i signs = _mm256_and_si256(tops, _mm256_set1_epi32(INT32_MIN));
  return _mm256_xor_ps(v, _mm256_castsi256_ps(signs));
}
// Lanes that stand kSpan apart change places.
template <int kSpan>
HEARTH_AVX2_INLINE Register RegisterSwap(Register v) {
  if constexpr (kSpan == 1) return _mm256_permute_ps(v, 0xB1);
  if constexpr (kSpan == 2) return _mm256_permute_ps(v, 0x4E);
  return _mm256_permute2f128_ps(v, v, 1);
}
template <int kSpan>
HEARTH_AVX2_INLINE Register RegisterNegateOdd(Register v) {
  return RegisterNegate(v, kSpan == 1 ? 0xAA : (kSpan == 2 ? 0xCC : 0xF0));
}
HEARTH_AVX2_INLINE RegisterBits RegisterNoBits() { return _mm256_setzero_si256(); }
// As integers, magnitudes keep their order and NaN is the largest.
HEARTH_AVX2_INLINE RegisterBits RegisterLargest(RegisterBits largest, Register v) {
  const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7FFFFFFF));
  return _mm256_max_epu32(largest, magnitude);
}
HEARTH_AVX2_INLINE float RegisterScale(RegisterBits largest) {
  largest = _mm256_max_epu32(largest, _mm256_permute2x128_si256(largest, largest, 1));
  largest = _mm256_max_epu32(largest, _mm256_shuffle_epi32(largest, 0x4E));
  largest = _mm256_max_epu32(largest, _mm256_shuffle_epi32(largest, 0xB1));
  return _mm256_cvtss_f32(_mm256_castsi256_ps(largest)) / 127.0f;
}

// Eight values over s: rounded and bounded.
HEARTH_AVX2_INLINE __m256i QuantizePart(const float* x, __m256 s, __m256 nonzero) {
  __m256 r = _mm256_and_ps(_mm256_div_ps(_mm256_loadu_ps(x), s), nonzero);
  // A bound is an integer, so bounding before the rounding gives the same; NaN takes the second
  // operand.
  r = _mm256_max_ps(r, _mm256_set1_ps(-127.0f));
  r = _mm256_min_ps(r, _mm256_set1_ps(127.0f));
  return _mm256_cvtps_epi32(r);
}

// Returns the sum of q.
HEARTH_AVX2_INLINE int32_t QuantizeRow(const float* x, uint32_t cols, float scale, int8_t* q) {
  const __m256 s = _mm256_set1_ps(scale);
  const __m256 nonzero = _mm256_cmp_ps(s, _mm256_setzero_ps(), _CMP_NEQ_UQ);
  __m256i sum = _mm256_setzero_si256();
  for (uint32_t col = 0; col < cols; col += 32) {
    const __m256i r0 = QuantizePart(x + col, s, nonzero);
    const __m256i r1 = QuantizePart(x + col + 8, s, nonzero);
    const __m256i r2 = QuantizePart(x + col + 16, s, nonzero);
    const __m256i r3 = QuantizePart(x + col + 24, s, nonzero);
    sum =
        _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_add_epi32(r0, r1), _mm256_add_epi32(r2, r3)));
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(r0, r1), _mm256_packs_epi32(r2, r3));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + col),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
  return _mm_cvtsi128_si32(half);
}

}  // namespace
}  // namespace hearth::avx2

// The shared body takes its registers from the functions above.
#include "cpu_kernels/ops/rotate_quantize_inl.h"

namespace hearth::avx2 {

HEARTH_AVX2 void RotateQuantizeRows(const RotateQuantizeArgs& args) { RunRotateQuantize(args); }

}  // namespace hearth::avx2
