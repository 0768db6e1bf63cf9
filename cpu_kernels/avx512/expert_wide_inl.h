// Bands of BF16, FP8 and F32 weights times fp32 rows. Arithmetic: cpu_kernels/ops/expert.h.
#pragma once

#include "cpu_kernels/avx512/expert_tile.h"
#include "cpu_kernels/avx512/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx512 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

struct Bf16Weights {
  static constexpr size_t kLineBytes = 32;  // one k of sixteen rows
  static constexpr bool kScaled = false;
  HEARTH_AVX512_INLINE __m512 Load(const uint8_t* line) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
};

struct F32Weights {
  static constexpr size_t kLineBytes = 64;
  static constexpr bool kScaled = false;
  HEARTH_AVX512_INLINE __m512 Load(const uint8_t* line) { return _mm512_loadu_ps(line); }
};

struct Fp8Weights {
  static constexpr size_t kLineBytes = 16;
  static constexpr bool kScaled = true;
  // The code's magnitude bits as those of an fp32 are its value times 2^-120; code 127 is NaN.
  HEARTH_AVX512_INLINE __m512 Load(const uint8_t* line) {
    const __m512i codes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line)));
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi32(0x7F));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7F));
    const __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(codes, magnitude), 24);
    const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 20)),
                                       _mm512_set1_ps(0x1p120f));
    const __m512i bits =
        _mm512_mask_mov_epi32(_mm512_castps_si512(value), nan, _mm512_set1_epi32(0x7FC00000));
    return _mm512_castsi512_ps(_mm512_or_si512(bits, sign));
  }
};

template <class Weights>
struct WideFormat {
  static constexpr bool kMultiplied = false;

  // acc[b][r] += k in [begin, end), in order. FP8: all of it lies in one block of columns.
  template <int R, int B>
  HEARTH_AVX512_INLINE void Run(const ExpertTile<B>& tile, uint32_t begin, uint32_t end,
                                __m512 (&acc)[B][R]) {
    __m512 scale[B];
    if constexpr (Weights::kScaled) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) scale[b] = _mm512_set1_ps(tile.grid[b][begin / kFp8BlockValues]);
    }
    for (size_t k = begin; k < end; ++k) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        __m512 w = Weights::Load(tile.band[b] + k * Weights::kLineBytes);
        if constexpr (Weights::kScaled) w = _mm512_mul_ps(w, scale[b]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          acc[b][r] = _mm512_fmadd_ps(w, _mm512_set1_ps(tile.x[r * tile.x_stride + k]), acc[b][r]);
        }
      }
    }
  }

  // total[b][r] lane i: row i of band b times activation row r.
  template <int R, int B>
  HEARTH_AVX512_INLINE void Dot(const ExpertTile<B>& tile, __m512 (*total)[R]) {
    for (uint32_t begin = 0; begin < tile.cols; begin += kSegmentValues) {
      const uint32_t left = tile.cols - begin;
      const uint32_t end = begin + (left < kSegmentValues ? left : kSegmentValues);
      __m512 acc[B][R];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[b][r] = _mm512_setzero_ps();
      }
      for (uint32_t k = begin; k < end;) {
        const uint32_t block_end = (k / kFp8BlockValues + 1) * kFp8BlockValues;
        const uint32_t run_end = Weights::kScaled && block_end < end ? block_end : end;
        Run<R, B>(tile, k, run_end, acc);
        k = run_end;
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
