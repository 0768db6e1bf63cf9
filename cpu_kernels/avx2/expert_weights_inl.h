// The weights of routed experts in AVX registers, eight rows of a band at a time. Layouts:
// pack/format/expert_layout.h; the loops around: ops/expert_nvfp4_inl.h, ops/expert_wide_inl.h.
#pragma once

#include "cpu_kernels/avx2/register_inl.h"

namespace hearth::avx2 {

// Registers of sums that fit beside R rows of NVFP4 and of the other formats.
constexpr int Nvfp4Units(int rows) { return rows <= 2 ? 2 : 1; }
constexpr int WideUnits(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

struct SubBlock {
  __m256i w[4];  // T + 12 of four k each
};

HEARTH_AVX2_INLINE SubBlock DecodeSubBlock(const uint8_t* codes) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i lut = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i line0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i line1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64));
  return {{_mm256_shuffle_epi8(lut, _mm256_and_si256(line0, nibble)),
           _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(line0, 4), nibble)),
           _mm256_shuffle_epi8(lut, _mm256_and_si256(line1, nibble)),
           _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(line1, 4), nibble))}};
}

HEARTH_AVX2_INLINE __m256i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm256_set1_epi32(value);
}

// bias + the dots of the sub-block's rows with q, exact: the sums of two products over four
// registers stay below 4 * 2 * 24 * 127 = 24384, so no 16-bit sum saturates.
HEARTH_AVX2_INLINE __m256 DotSubBlock(const SubBlock& block, const int8_t* q, int32_t bias) {
  const __m256i d0 = _mm256_maddubs_epi16(block.w[0], BroadcastDword(q));
  const __m256i d1 = _mm256_maddubs_epi16(block.w[1], BroadcastDword(q + 4));
  const __m256i d2 = _mm256_maddubs_epi16(block.w[2], BroadcastDword(q + 8));
  const __m256i d3 = _mm256_maddubs_epi16(block.w[3], BroadcastDword(q + 12));
  const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(d0, d1), _mm256_add_epi16(d2, d3));
  const __m256i dot = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  return _mm256_cvtepi32_ps(_mm256_add_epi32(dot, _mm256_set1_epi32(bias)));
}

// E4M3 codes without sign, halved: the code's bits as those of an fp16 are the value times 2^-8,
// subnormal codes included, which converting makes normal numbers: multiplying fp32 subnormals
// costs Intel's cores over a hundred cycles.
HEARTH_AVX2_INLINE __m256 HalvedE4m3(const uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m128i bits = _mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7);
  return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(0x1p7f));
}

HEARTH_AVX2_INLINE __m256 RegisterOfBf16(const uint8_t* codes) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

HEARTH_AVX2_INLINE __m256 RegisterOfF32(const uint8_t* values) {
  return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)));
}

// As HalvedE4m3, with sign; code 127 is NaN.
HEARTH_AVX2_INLINE __m256 RegisterOfE4m3(const uint8_t* codes) {
  const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m128i largest = _mm_set1_epi16(0x7F);
  const __m128i magnitude = _mm_and_si128(bits, largest);
  const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, largest), _mm_set1_epi16(0x7E00));
  const __m128i sign = _mm_slli_epi16(_mm_xor_si128(bits, magnitude), 8);
  const __m128i number = _mm_or_si128(_mm_slli_epi16(magnitude, 7), nan);
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(number, sign)), _mm256_set1_ps(0x1p8f));
}

}  // namespace hearth::avx2
