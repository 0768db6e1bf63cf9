// The weights of routed experts in AVX-512 registers, sixteen rows of a band at a time. Layouts:
// pack/format/expert_layout.h; the loops around: ops/expert_nvfp4_inl.h, ops/expert_wide_inl.h.
#pragma once

#include "cpu_kernels/avx512/register_inl.h"

namespace hearth::avx512 {

// Registers of sums that fit beside R rows of NVFP4 and of the other formats.
constexpr int Nvfp4Units(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }
constexpr int WideUnits(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

struct SubBlock {
  __m512i w[4];  // T + 12 of four k each
};

HEARTH_AVX512_INLINE SubBlock DecodeSubBlock(const uint8_t* codes) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i lut = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i line0 = _mm512_loadu_si512(codes);
  const __m512i line1 = _mm512_loadu_si512(codes + 64);
  return {{_mm512_shuffle_epi8(lut, _mm512_and_si512(line0, nibble)),
           _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(line0, 4), nibble)),
           _mm512_shuffle_epi8(lut, _mm512_and_si512(line1, nibble)),
           _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(line1, 4), nibble))}};
}

HEARTH_AVX512_INLINE __m512i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm512_set1_epi32(value);
}

// bias + the dots of the sub-block's rows with q, exact.
HEARTH_AVX512_INLINE __m512 DotSubBlock(const SubBlock& block, const int8_t* q, int32_t bias) {
  __m512i dot = _mm512_set1_epi32(bias);
  dot = _mm512_dpbusd_epi32(dot, block.w[0], BroadcastDword(q));
  dot = _mm512_dpbusd_epi32(dot, block.w[1], BroadcastDword(q + 4));
  dot = _mm512_dpbusd_epi32(dot, block.w[2], BroadcastDword(q + 8));
  dot = _mm512_dpbusd_epi32(dot, block.w[3], BroadcastDword(q + 12));
  return _mm512_cvtepi32_ps(dot);
}

// E4M3 codes without sign, halved: the code's bits as those of an fp16 are the value times 2^-8,
// subnormal codes included, which converting makes normal numbers: multiplying fp32 subnormals
// costs Intel's cores over a hundred cycles.
HEARTH_AVX512_INLINE __m512 HalvedE4m3(const uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(0x1p7f));
}

HEARTH_AVX512_INLINE __m512 RegisterOfBf16(const uint8_t* codes) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

HEARTH_AVX512_INLINE __m512 RegisterOfF32(const uint8_t* values) { return _mm512_loadu_ps(values); }

// As HalvedE4m3, with sign; code 127 is NaN.
HEARTH_AVX512_INLINE __m512 RegisterOfE4m3(const uint8_t* codes) {
  const __m256i bits =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7F));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7F));
  const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(bits, magnitude), 8);
  const __m256i number =
      _mm256_mask_mov_epi16(_mm256_slli_epi16(magnitude, 7), nan, _mm256_set1_epi16(0x7E00));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(number, sign)), _mm512_set1_ps(0x1p8f));
}

}  // namespace hearth::avx512
