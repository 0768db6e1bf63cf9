// NVFP4 half-bands times quantised rows. Arithmetic: cpu_kernels/ops/expert.h.
//
// A code becomes the unsigned byte T + 12, T its doubled value (-12 to 12). Products of such bytes
// with int8 activations, summed over the sixteen values of a sub-block, two to a lane, stay below 4
// * 2 * 24 * 127 = 24384: no 16-bit sum saturates. 12 times the sum of the activations is taken off
// afterwards.
#pragma once

#include <cstring>

#include "cpu_kernels/avx2/expert_tile.h"
#include "cpu_kernels/avx2/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx2 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

HEARTH_AVX2_INLINE __m256i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm256_set1_epi32(value);
}

// Eight E4M3 codes without sign, halved: the code's bits as those of an fp32 (subnormal codes
// included) are the value times 2^-120.
HEARTH_AVX2_INLINE __m256 HalvedE4m3(const uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 20);
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p119f));
}

struct Nvfp4Format {
  static constexpr bool kMultiplied = true;
  static constexpr int Units(int rows) { return rows <= 2 ? 2 : 1; }  // in the registers at once
  static constexpr uint32_t kSegmentSubBlocks = kSegmentValues / kNvfp4BlockValues;  // 20

  // The 32-bit dots of one sub-block with row q, `bias` added.
  HEARTH_AVX2_INLINE __m256i DotSubBlock(const __m256i (&w)[4], const int8_t* q, int32_t bias) {
    const __m256i d0 = _mm256_maddubs_epi16(w[0], BroadcastDword(q));
    const __m256i d1 = _mm256_maddubs_epi16(w[1], BroadcastDword(q + 4));
    const __m256i d2 = _mm256_maddubs_epi16(w[2], BroadcastDword(q + 8));
    const __m256i d3 = _mm256_maddubs_epi16(w[3], BroadcastDword(q + 12));
    const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(d0, d1), _mm256_add_epi16(d2, d3));
    return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), _mm256_set1_epi32(bias));
  }

  HEARTH_AVX2_INLINE void DecodeSubBlock(const uint8_t* codes, __m256i (&w)[4]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i lut = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i line0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    const __m256i line1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64));
    w[0] = _mm256_shuffle_epi8(lut, _mm256_and_si256(line0, nibble));
    w[1] = _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(line0, 4), nibble));
    w[2] = _mm256_shuffle_epi8(lut, _mm256_and_si256(line1, nibble));
    w[3] = _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(line1, 4), nibble));
  }

  // total[u][r] lane i: row i of unit u times activation row r, before the multiplier.
  template <int R, int U>
  HEARTH_AVX2_INLINE void Dot(const ExpertTile<U>& tile, __m256 (*total)[R]) {
    const uint32_t sub_blocks = tile.cols / kNvfp4BlockValues;
    const size_t row_blocks = ActivationBlocks(tile.cols);
    for (uint32_t begin = 0; begin < sub_blocks; begin += kSegmentSubBlocks) {
      const uint32_t left = sub_blocks - begin;
      const uint32_t end = begin + (left < kSegmentSubBlocks ? left : kSegmentSubBlocks);
      __m256 acc[U][R];
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[u][r] = _mm256_setzero_ps();
      }
      for (size_t s = begin; s < end; ++s) {
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          const HalfBand& unit = tile.unit[u];
          __m256i w[4];
          DecodeSubBlock(unit.band + s * 128 + unit.half * 32, w);
          const __m256 w_scale =
              HalvedE4m3(unit.band + size_t{tile.cols} * 8 + s * 16 + unit.half * 8);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const __m256i dot =
                DotSubBlock(w, tile.q + r * row_blocks * kActivationBlockValues + s * 16,
                            tile.sum16[r * row_blocks * 2 + s] * -12);
            const __m256 x_scale = _mm256_set1_ps(tile.x_scale[r * row_blocks + s / 2]);
            acc[u][r] = _mm256_fmadd_ps(_mm256_mul_ps(x_scale, w_scale), _mm256_cvtepi32_ps(dot),
                                        acc[u][r]);
          }
        }
      }
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          total[u][r] = begin == 0 ? acc[u][r] : _mm256_add_ps(total[u][r], acc[u][r]);
        }
      }
    }
  }
};

}  // namespace
}  // namespace hearth::avx2
