// NVFP4 bands times quantised rows. Arithmetic: cpu_kernels/ops/expert.h.
//
// A code becomes the unsigned byte T + 12, T its doubled value (-12 to 12), so that one instruction
// (vpdpbusd) multiplies four of them with four int8 activations; 12 times the sum of the
// activations is taken off beforehand. Each sub-block of a band is decoded once for all rows of the
// tile.
#pragma once

#include <cstring>

#include "cpu_kernels/avx512/expert_tile.h"
#include "cpu_kernels/avx512/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx512 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

inline constexpr uint32_t kSegmentSubBlocks = kSegmentValues / kNvfp4BlockValues;  // 20

HEARTH_AVX512_INLINE __m512i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm512_set1_epi32(value);
}

// Sixteen E4M3 codes without sign, halved: the code's bits as those of an fp32 (subnormal codes
// included) are the value times 2^-120.
HEARTH_AVX512_INLINE __m512 HalvedE4m3(const uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 20);
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p119f));
}

struct Nvfp4Format {
  static constexpr bool kMultiplied = true;

  // total[b][r] lane i: row i of band b times activation row r, before the multiplier.
  template <int R, int B>
  HEARTH_AVX512_INLINE void Dot(const ExpertTile<B>& tile, __m512 (*total)[R]) {
    const uint32_t sub_blocks = tile.cols / kNvfp4BlockValues;
    const size_t row_blocks = ActivationBlocks(tile.cols);
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i lut = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    for (uint32_t begin = 0; begin < sub_blocks; begin += kSegmentSubBlocks) {
      const uint32_t left = sub_blocks - begin;
      const uint32_t count = left < kSegmentSubBlocks ? left : kSegmentSubBlocks;
      alignas(64) int32_t bias[R][32];  // -12 * sum16 of the segment's sub-blocks
      const auto present = static_cast<uint32_t>((uint64_t{1} << count) - 1);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t* sums = tile.sum16 + r * row_blocks * 2 + begin;
        const __m512i s0 = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(present), sums);
        const __m512i s1 =
            _mm512_maskz_loadu_epi32(static_cast<__mmask16>(present >> 16), sums + 16);
        _mm512_store_si512(bias[r], _mm512_mullo_epi32(s0, _mm512_set1_epi32(-12)));
        _mm512_store_si512(bias[r] + 16, _mm512_mullo_epi32(s1, _mm512_set1_epi32(-12)));
      }
      __m512 acc[B][R];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[b][r] = _mm512_setzero_ps();
      }
      for (uint32_t i = 0; i < count; ++i) {
        const size_t s = begin + i;
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) {
          const uint8_t* codes = tile.band[b] + s * 128;
          const __m512i line0 = _mm512_loadu_si512(codes);
          const __m512i line1 = _mm512_loadu_si512(codes + 64);
          const __m512i w0 = _mm512_shuffle_epi8(lut, _mm512_and_si512(line0, nibble));
          const __m512i w1 =
              _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(line0, 4), nibble));
          const __m512i w2 = _mm512_shuffle_epi8(lut, _mm512_and_si512(line1, nibble));
          const __m512i w3 =
              _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(line1, 4), nibble));
          const __m512 w_scale = HalvedE4m3(tile.band[b] + size_t{tile.cols} * 8 + s * 16);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const int8_t* q = tile.q + r * row_blocks * kActivationBlockValues + s * 16;
            __m512i dot = _mm512_set1_epi32(bias[r][i]);
            dot = _mm512_dpbusd_epi32(dot, w0, BroadcastDword(q));
            dot = _mm512_dpbusd_epi32(dot, w1, BroadcastDword(q + 4));
            dot = _mm512_dpbusd_epi32(dot, w2, BroadcastDword(q + 8));
            dot = _mm512_dpbusd_epi32(dot, w3, BroadcastDword(q + 12));
            const __m512 x_scale = _mm512_set1_ps(tile.x_scale[r * row_blocks + s / 2]);
            acc[b][r] = _mm512_fmadd_ps(_mm512_mul_ps(x_scale, w_scale), _mm512_cvtepi32_ps(dot),
                                        acc[b][r]);
          }
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          total[b][r] = begin == 0 ? acc[b][r] : _mm512_add_ps(total[b][r], acc[b][r]);
        }
      }
    }
  }
};

}  // namespace
}  // namespace hearth::avx512
