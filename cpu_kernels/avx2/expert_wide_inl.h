// Half-bands of BF16, FP8 and F32 weights times fp32 rows. Arithmetic: cpu_kernels/ops/expert.h.
#pragma once

#include "cpu_kernels/avx2/expert_tile.h"
#include "cpu_kernels/avx2/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx2 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

struct Bf16Weights {
  static constexpr size_t kLineBytes = 32;  // one k of sixteen rows
  static constexpr bool kScaled = false;
  HEARTH_AVX2_INLINE __m256 Load(const uint8_t* half_line) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(half_line));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
};

struct F32Weights {
  static constexpr size_t kLineBytes = 64;
  static constexpr bool kScaled = false;
  HEARTH_AVX2_INLINE __m256 Load(const uint8_t* half_line) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half_line)));
  }
};

struct Fp8Weights {
  static constexpr size_t kLineBytes = 16;
  static constexpr bool kScaled = true;
  // The code's magnitude bits as those of an fp32 are its value times 2^-120; code 127 is NaN.
  HEARTH_AVX2_INLINE __m256 Load(const uint8_t* half_line) {
    const __m256i codes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(half_line)));
    const __m256i largest = _mm256_set1_epi32(0x7F);
    const __m256i magnitude = _mm256_and_si256(codes, largest);
    const __m256i nan = _mm256_cmpeq_epi32(magnitude, largest);
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(codes, magnitude), 24);
    const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)),
                                       _mm256_set1_ps(0x1p120f));
    return _mm256_or_ps(_mm256_or_ps(value, _mm256_castsi256_ps(nan)), _mm256_castsi256_ps(sign));
  }
};

template <class Weights>
struct WideFormat {
  static constexpr bool kMultiplied = false;
  static constexpr int Units(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

  // acc[u][r] += k in [begin, end), in order. FP8: all of it lies in one block of columns.
  template <int R, int U>
  HEARTH_AVX2_INLINE void Run(const ExpertTile<U>& tile, uint32_t begin, uint32_t end,
                              __m256 (&acc)[U][R]) {
    __m256 scale[U];
    if constexpr (Weights::kScaled) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        scale[u] = _mm256_set1_ps(tile.unit[u].grid[begin / kFp8BlockValues]);
      }
    }
    for (size_t k = begin; k < end; ++k) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        const HalfBand& unit = tile.unit[u];
        __m256 w = Weights::Load(unit.band + k * Weights::kLineBytes +
                                 unit.half * (Weights::kLineBytes / 2));
        if constexpr (Weights::kScaled) w = _mm256_mul_ps(w, scale[u]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          acc[u][r] = _mm256_fmadd_ps(w, _mm256_set1_ps(tile.x[r * tile.x_stride + k]), acc[u][r]);
        }
      }
    }
  }

  // total[u][r] lane i: row i of unit u times activation row r.
  template <int R, int U>
  HEARTH_AVX2_INLINE void Dot(const ExpertTile<U>& tile, __m256 (*total)[R]) {
    for (uint32_t begin = 0; begin < tile.cols; begin += kSegmentValues) {
      const uint32_t left = tile.cols - begin;
      const uint32_t end = begin + (left < kSegmentValues ? left : kSegmentValues);
      __m256 acc[U][R];
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[u][r] = _mm256_setzero_ps();
      }
      for (uint32_t k = begin; k < end;) {
        const uint32_t block_end = (k / kFp8BlockValues + 1) * kFp8BlockValues;
        const uint32_t run_end = Weights::kScaled && block_end < end ? block_end : end;
        Run<R, U>(tile, k, run_end, acc);
        k = run_end;
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
