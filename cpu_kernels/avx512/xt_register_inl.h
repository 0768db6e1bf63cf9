// What the shared body of the XT experts, ops/expert_xt_inl.h, needs of AVX-512 beside the decoder:
// sums of sixteen rows, and their numbers.
#pragma once

#include "cpu_kernels/avx512/register_inl.h"

namespace hearth::avx512 {

inline constexpr int kXtParts = 1;
using XtBytes = __m512i;  // a line
using XtSums = __m512i;

HEARTH_AVX512_INLINE XtSums XtLoad(const int32_t* sums) { return _mm512_loadu_si512(sums); }
HEARTH_AVX512_INLINE void XtStore(int32_t* sums, XtSums v) { _mm512_storeu_si512(sums, v); }
// Adds the dots of each row's four bytes with four activations.
HEARTH_AVX512_INLINE XtSums XtDot(XtSums acc, XtBytes w, const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(four));
}
// float(sum - bias)
HEARTH_AVX512_INLINE Register XtNumbers(const int32_t* sums, int32_t bias) {
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(XtLoad(sums), _mm512_set1_epi32(bias)));
}
// Sixteen fp16 numbers.
HEARTH_AVX512_INLINE Register XtRowScales(const uint8_t* scales) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}
// The first `count` numbers, at most all lanes.
HEARTH_AVX512_INLINE Register XtLoadNumbers(const float* from, uint32_t count) {
  const uint32_t lanes = count >= kRegisterLanes ? 0xFFFFu : (1u << count) - 1;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), from);
}

HEARTH_AVX512_INLINE XtBytes XtLine(const uint8_t* line) { return _mm512_loadu_si512(line); }
// Sixteen bytes, in every quarter.
HEARTH_AVX512_INLINE XtBytes XtTable(const uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
// The low (0) or the high (1) nibble of each byte.
HEARTH_AVX512_INLINE XtBytes XtNibble(XtBytes bytes, int half) {
  const __m512i nibble = _mm512_set1_epi8(15);
  return _mm512_and_si512(half == 0 ? bytes : _mm512_srli_epi16(bytes, 4), nibble);
}
HEARTH_AVX512_INLINE XtBytes XtShuffle(XtBytes table, XtBytes index) {
  return _mm512_shuffle_epi8(table, index);
}
HEARTH_AVX512_INLINE XtBytes XtXor(XtBytes a, XtBytes b) { return _mm512_xor_si512(a, b); }
HEARTH_AVX512_INLINE XtBytes XtAddBytes(XtBytes a, XtBytes b) { return _mm512_add_epi8(a, b); }
HEARTH_AVX512_INLINE XtBytes XtMerge(uint32_t mask, XtBytes now, XtBytes before) {
  const __m512i bits = _mm512_set1_epi8(static_cast<char>(mask));
  return _mm512_ternarylogic_epi64(bits, now, before, 0xCA);
}

}  // namespace hearth::avx512
