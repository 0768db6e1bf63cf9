// Rows into the rotated space and to int8. Contract: cpu_kernels/ops/xt.h; definition:
// cpu_kernels/scalar/quantize.cc.
#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/avx512/register_inl.h"

namespace hearth::avx512 {
namespace {

using RegisterBits = __m512i;

HEARTH_AVX512_INLINE Register RegisterLoad(const float* from) { return _mm512_loadu_ps(from); }
HEARTH_AVX512_INLINE Register RegisterSub(Register a, Register b) { return _mm512_sub_ps(a, b); }
// Lanes whose bit is set change their sign.
HEARTH_AVX512_INLINE Register RegisterNegate(Register v, uint32_t lanes) {
  const __m512i bits = _mm512_castps_si512(v);
  return _mm512_castsi512_ps(_mm512_mask_xor_epi32(bits, static_cast<__mmask16>(lanes), bits,
                                                   _mm512_set1_epi32(INT32_MIN)));
}
// Lanes that stand kSpan apart change places.
template <int kSpan>
HEARTH_AVX512_INLINE Register RegisterSwap(Register v) {
  if constexpr (kSpan == 1) return _mm512_permute_ps(v, 0xB1);
  if constexpr (kSpan == 2) return _mm512_permute_ps(v, 0x4E);
  if constexpr (kSpan == 4) return _mm512_shuffle_f32x4(v, v, 0xB1);
  return _mm512_shuffle_f32x4(v, v, 0x4E);
}
template <int kSpan>
HEARTH_AVX512_INLINE Register RegisterNegateOdd(Register v) {
  constexpr uint32_t kLanes =
      kSpan == 1 ? 0xAAAA : (kSpan == 2 ? 0xCCCC : (kSpan == 4 ? 0xF0F0 : 0xFF00));
  return RegisterNegate(v, kLanes);
}
HEARTH_AVX512_INLINE RegisterBits RegisterNoBits() { return _mm512_setzero_si512(); }
// As integers, magnitudes keep their order and NaN is the largest.
HEARTH_AVX512_INLINE RegisterBits RegisterLargest(RegisterBits largest, Register v) {
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
  return _mm512_max_epu32(largest, magnitude);
}
HEARTH_AVX512_INLINE float RegisterScale(RegisterBits largest) {
  const uint32_t bits = _mm512_reduce_max_epu32(largest);
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof(magnitude));
  return magnitude / 127.0f;
}

// Returns the sum of q.
HEARTH_AVX512_INLINE int32_t QuantizeRow(const float* x, uint32_t cols, float scale, int8_t* q) {
  const __m512 s = _mm512_set1_ps(scale);
  const __mmask16 nonzero = _mm512_cmp_ps_mask(s, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  __m512i sum = _mm512_setzero_si512();
  for (uint32_t col = 0; col < cols; col += kRegisterLanes) {
    __m512 r = _mm512_maskz_div_ps(nonzero, _mm512_loadu_ps(x + col), s);
    // A bound is an integer, so bounding before the rounding gives the same; NaN takes the second
    // operand.
    r = _mm512_max_ps(r, _mm512_set1_ps(-127.0f));
    r = _mm512_min_ps(r, _mm512_set1_ps(127.0f));
    const __m512i rounded = _mm512_cvtps_epi32(r);
    sum = _mm512_add_epi32(sum, rounded);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + col), _mm512_cvtepi32_epi8(rounded));
  }
  return _mm512_reduce_add_epi32(sum);
}

}  // namespace
}  // namespace hearth::avx512

// The shared body takes its registers from the functions above.
#include "cpu_kernels/ops/rotate_quantize_inl.h"

namespace hearth::avx512 {

HEARTH_AVX512 void RotateQuantizeRows(const RotateQuantizeArgs& args) { RunRotateQuantize(args); }

}  // namespace hearth::avx512
