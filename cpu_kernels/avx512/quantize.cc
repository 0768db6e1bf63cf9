// fp32 rows as int8 blocks. Contract: cpu_kernels/ops/activation.h; definition: cpu_kernels/scalar.
#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/avx512/target.h"

namespace hearth::avx512 {
namespace {

// The sum of sixteen int8 values: as unsigned bytes (+128 each), added by the distance to zero.
HEARTH_AVX512_INLINE int32_t SumBytes(__m128i q) {
  const __m128i unsigned_bytes = _mm_xor_si128(q, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i halves = _mm_sad_epu8(unsigned_bytes, _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2) - 16 * 128;
}

// Sixteen values over s: rounded, bounded, as bytes. Lanes outside `valid` give 0.
HEARTH_AVX512_INLINE __m128i QuantizeHalf(__m512 x, __m512 s, __mmask16 valid) {
  __m512 r = _mm512_maskz_div_ps(valid, x, s);
  // A bound is an integer, so bounding before the rounding gives the same; NaN takes the second
  // operand.
  r = _mm512_max_ps(r, _mm512_set1_ps(-127.0f));
  r = _mm512_min_ps(r, _mm512_set1_ps(127.0f));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(r));
}

HEARTH_AVX512_INLINE void QuantizeBlock(const float* x, __mmask16 low, __mmask16 high, int8_t* q,
                                        float* scale, int32_t* sum16) {
  const __m512 x0 = _mm512_maskz_loadu_ps(low, x);
  const __m512 x1 = _mm512_maskz_loadu_ps(high, x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
  const __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
  const uint32_t magnitude_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1));
  const __m512 ratio =
      _mm512_div_ps(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int32_t>(magnitude_bits))),
                    _mm512_set1_ps(127.0f));
  const __mmask16 nonzero = _mm512_cmp_ps_mask(ratio, _mm512_set1_ps(kScaleMin), _CMP_NLT_UQ);
  const __m512i kept = _mm512_set1_epi32(static_cast<int32_t>(kScaleMantissaMask));
  const __m512 s =
      _mm512_castsi512_ps(_mm512_maskz_and_epi32(nonzero, _mm512_castps_si512(ratio), kept));
  *scale = _mm512_cvtss_f32(s);
  const __m128i q0 = QuantizeHalf(x0, s, low & nonzero);
  const __m128i q1 = QuantizeHalf(x1, s, high & nonzero);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), q0);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), q1);
  sum16[0] = SumBytes(q0);
  sum16[1] = SumBytes(q1);
}

}  // namespace

HEARTH_AVX512 void QuantizeRows(const QuantizeRowsArgs& args) {
  const size_t blocks = ActivationBlocks(args.cols);
  const size_t whole = args.cols / kActivationBlockValues;
  const uint32_t tail = args.cols % kActivationBlockValues;
  const auto tail_mask = static_cast<uint32_t>((uint64_t{1} << tail) - 1);
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    for (size_t b = 0; b < blocks; ++b) {
      const uint32_t mask = b < whole ? 0xFFFFFFFFu : tail_mask;
      const size_t block = t * blocks + b;
      QuantizeBlock(x + b * kActivationBlockValues, static_cast<__mmask16>(mask),
                    static_cast<__mmask16>(mask >> 16), args.q + block * kActivationBlockValues,
                    args.scale + block, args.sum16 + block * 2);
    }
  }
}

}  // namespace hearth::avx512
