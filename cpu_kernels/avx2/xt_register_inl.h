// What the shared bodies of the XT experts, ops/expert_xt_inl.h and ops/xt_nibbles_inl.h, need of
// AVX2: half a line, the sums of eight rows, and their numbers.
#pragma once

#include "cpu_kernels/avx2/register_inl.h"

namespace hearth::avx2 {

inline constexpr int kXtParts = 2;
using XtBytes = __m256i;  // half a line: eight rows
using XtSums = __m256i;

HEARTH_AVX2_INLINE XtSums XtLoad(const int32_t* sums) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
}
HEARTH_AVX2_INLINE void XtStore(int32_t* sums, XtSums v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), v);
}
// Adds the dots of each row's four bytes with four activations. Two products of a byte up to 127
// and an activation down to -127 fit in 16 bits.
HEARTH_AVX2_INLINE XtSums XtDot(XtSums acc, XtBytes w, const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  const __m256i pairs = _mm256_maddubs_epi16(w, _mm256_set1_epi32(four));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
// float(sum - bias)
HEARTH_AVX2_INLINE Register XtNumbers(const int32_t* sums, int32_t bias) {
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(XtLoad(sums), _mm256_set1_epi32(bias)));
}
// Eight fp16 numbers.
HEARTH_AVX2_INLINE Register XtRowScales(const uint8_t* scales) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
}
// The first `count` numbers, at most all lanes; zero in the others.
HEARTH_AVX2_INLINE Register XtLoadNumbers(const float* from, uint32_t count) {
  if (count >= kRegisterLanes) return _mm256_loadu_ps(from);
  float lanes[kRegisterLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return _mm256_loadu_ps(lanes);
}

HEARTH_AVX2_INLINE XtBytes XtLine(const uint8_t* line) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
}
// Sixteen bytes, in both halves.
HEARTH_AVX2_INLINE XtBytes XtTable(const uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
// The low (0) or the high (1) nibble of each byte.
HEARTH_AVX2_INLINE XtBytes XtNibble(XtBytes bytes, int half) {
  const __m256i nibble = _mm256_set1_epi8(15);
  return _mm256_and_si256(half == 0 ? bytes : _mm256_srli_epi16(bytes, 4), nibble);
}
HEARTH_AVX2_INLINE XtBytes XtShuffle(XtBytes table, XtBytes index) {
  return _mm256_shuffle_epi8(table, index);
}
HEARTH_AVX2_INLINE XtBytes XtXor(XtBytes a, XtBytes b) { return _mm256_xor_si256(a, b); }
HEARTH_AVX2_INLINE XtBytes XtAddBytes(XtBytes a, XtBytes b) { return _mm256_add_epi8(a, b); }
HEARTH_AVX2_INLINE XtBytes XtMerge(uint32_t mask, XtBytes now, XtBytes before) {
  const __m256i bits = _mm256_set1_epi8(static_cast<char>(mask));
  const __m256i differ = _mm256_and_si256(_mm256_xor_si256(now, before), bits);
  return _mm256_xor_si256(before, differ);
}

}  // namespace hearth::avx2
