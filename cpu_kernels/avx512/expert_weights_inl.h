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

HEARTH_AVX512_INLINE __m512i CodeBytes() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

HEARTH_AVX512_INLINE SubBlock DecodeSubBlock(const uint8_t* codes) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i lut = CodeBytes();
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

// E4M3 codes without sign, halved: the code's bits as those of an fp32 (subnormal codes included)
// are the value times 2^-120.
HEARTH_AVX512_INLINE __m512 HalvedE4m3(const uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 20);
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p119f));
}

HEARTH_AVX512_INLINE __m512 RegisterOfBf16(const uint8_t* codes) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

HEARTH_AVX512_INLINE __m512 RegisterOfF32(const uint8_t* values) { return _mm512_loadu_ps(values); }

// The code's magnitude bits as those of an fp32 are its value times 2^-120; code 127 is NaN.
HEARTH_AVX512_INLINE __m512 RegisterOfE4m3(const uint8_t* codes) {
  const __m512i bits =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7F));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7F));
  const __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(bits, magnitude), 24);
  const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 20)),
                                     _mm512_set1_ps(0x1p120f));
  const __m512i number =
      _mm512_mask_mov_epi32(_mm512_castps_si512(value), nan, _mm512_set1_epi32(0x7FC00000));
  return _mm512_castsi512_ps(_mm512_or_si512(number, sign));
}

}  // namespace hearth::avx512
