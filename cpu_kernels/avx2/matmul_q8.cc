// Q8 matrix times quantised rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// maddubs wants unsigned times signed bytes and saturates at 16 bits. With |w| and the activation
// under w's sign, two products are at most 2 * 128 * 127 = 32512: they fit. For many rows the
// operations on each activation cost more than those on the weights, and 16-bit products win.
#include <cstring>

#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/target.h"
#include "pack/format/matrix_layout.h"

namespace hearth::avx2 {
namespace {

HEARTH_AVX2_INLINE __m256i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm256_set1_epi32(value);
}

// One block of R rows times the lines of a band, a line as two halves of eight rows. Asks for the
// same lines of the next band, `next_bytes` on.
template <int R>
HEARTH_AVX2_INLINE void DotBlock(const uint8_t* codes, uint64_t next_bytes, const int8_t* q,
                                 size_t q_stride, __m256i (&dot)[2][R]) {
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) dot[0][r] = dot[1][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int step = 0; step < 8; ++step) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + next_bytes + step * 64), _MM_HINT_T1);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const auto* line = reinterpret_cast<const __m256i*>(codes + step * 64 + h * 32);
      const __m256i w =
          _mm256_xor_si256(_mm256_loadu_si256(line), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
        const __m256i x = _mm256_sign_epi8(BroadcastDword(q + r * q_stride + step * 4), w);
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
        dot[h][r] = _mm256_add_epi32(dot[h][r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }
}

// sum += block i of one band, both halves, R rows; `scales` are those of the block.
template <int R>
HEARTH_AVX2_INLINE void AddScaled(const uint8_t* scales, const float* x_scale,
                                  size_t x_scale_stride, const __m256i (&dot)[2][R],
                                  __m256 (&sum)[2][R]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 w_scale =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + h * 16)));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 scale = _mm256_mul_ps(w_scale, _mm256_set1_ps(x_scale[r * x_scale_stride]));
      sum[h][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot[h][r]), sum[h][r]);
    }
  }
}

// The lanes of one band that are rows of w.
HEARTH_AVX2_INLINE void StoreBand(const MatmulQ8Args& args, uint32_t band, size_t t,
                                  const float* sums) {
  const uint32_t left = args.out_rows - band * kBandRows;
  float* y = args.y + t * args.y_stride + size_t{band} * kBandRows;
  std::memcpy(y, sums, (left < kBandRows ? left : kBandRows) * sizeof(float));
}

// One or two rows: a stream of weights, no work beside it.
template <int R>
HEARTH_AVX2 __attribute__((noinline)) void Q8Tile(const MatmulQ8Args& args, uint32_t band) {
  const size_t blocks = args.x.cols / kQ8BlockValues;
  const auto* w = reinterpret_cast<const uint8_t*>(args.w) + band * Q8BandBytes(args.x.cols);
  __m256 sum[2][R];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
  for (size_t i = 0; i < blocks; ++i) {
    __m256i dot[2][R];
    DotBlock<R>(w + i * 512, Q8BandBytes(args.x.cols), args.x.q + i * kQ8BlockValues,
                blocks * kQ8BlockValues, dot);
    AddScaled<R>(w + blocks * 512 + i * 32, args.x.scale + i, blocks, dot, sum);
  }
  for (size_t r = 0; r < R; ++r) {
    float lanes[kBandRows];
    _mm256_storeu_ps(lanes, sum[0][r]);
    _mm256_storeu_ps(lanes + 8, sum[1][r]);
    StoreBand(args, band, r, lanes);
  }
}

// Three rows and more: activations as pairs of 16-bit values, made once for a group of bands. Then
// two multiplications and two additions are all that a line costs for a row.
constexpr uint32_t kPairRows = 4;
constexpr uint32_t kGroupBands = 8;  // 340 KiB at 2560 columns: half of a second-level cache
constexpr size_t kChunkBlocks = 64;  // 18 KiB of pairs: they stay in the first-level cache

// R rows of up to kChunkBlocks blocks.
template <int R>
struct PairRows {
  // For each block and row: (x0, x2) of its eight steps, then (x1, x3) of them.
  alignas(32) int32_t pair[kChunkBlocks][R][16];
  int32_t bias[kChunkBlocks][R];  // -128 times the sum of the block: codes are value + 128

  HEARTH_AVX2_INLINE void Fill(PairRows& out, const QuantizedRows& x, size_t t, size_t first,
                               size_t count) {
    const size_t blocks = x.cols / kQ8BlockValues;
    for (size_t i = 0; i < count; ++i) {
      for (int r = 0; r < R; ++r) {
        const size_t block = (t + r) * blocks + first + i;
        const __m256i q =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q + block * kQ8BlockValues));
        auto* to = reinterpret_cast<__m256i*>(out.pair[i][r]);
        _mm256_store_si256(to, _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
        _mm256_store_si256(to + 1, _mm256_srai_epi16(q, 8));
        out.bias[i][r] = (x.sum16[block * 2] + x.sum16[block * 2 + 1]) * -128;
      }
    }
  }
};

// dot += one block, both halves of the band's lines; asks for the next band's as DotBlock does.
template <int R>
HEARTH_AVX2_INLINE void AddPairDots(const uint8_t* codes, uint64_t next_bytes,
                                    const int32_t (&pair)[R][16], __m256i (&dot)[2][R]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const int step = i / 2;
    if (i % 2 == 0) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + next_bytes + step * 64), _MM_HINT_T1);
    }
    __m256i w[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      w[h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + step * 64 + h * 32));
      w[h] =
          i % 2 == 0 ? _mm256_and_si256(w[h], _mm256_set1_epi16(0xFF)) : _mm256_srli_epi16(w[h], 8);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i x = _mm256_set1_epi32(pair[r][step + i % 2 * 8]);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        dot[h][r] = _mm256_add_epi32(dot[h][r], _mm256_madd_epi16(w[h], x));
        // Keeps the compiler from joining additions anew, for which the registers do not suffice.
        asm("" : "+x"(dot[h][r]));
      }
    }
  }
}

// Adds `count` blocks from `first` of one band, R rows, to acc. The sums stay in memory: the dots
// need the registers.
template <int R>
HEARTH_AVX2 __attribute__((noinline)) void AddPairChunk(const uint8_t* w, size_t blocks,
                                                        size_t first, size_t count,
                                                        const PairRows<R>& x, const float* x_scale,
                                                        float (&acc)[R][kBandRows]) {
  for (size_t i = 0; i < count; ++i) {
    __m256i dot[2][R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) dot[0][r] = dot[1][r] = _mm256_set1_epi32(x.bias[i][r]);
    const uint8_t* codes = w + (first + i) * 512;
    AddPairDots<R>(codes, blocks * (512 + 32), x.pair[i], dot);
    const uint8_t* scales = w + blocks * 512 + (first + i) * 32;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256 w_scale =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + h * 16)));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 scale =
            _mm256_mul_ps(w_scale, _mm256_set1_ps(x_scale[r * blocks + first + i]));
        const __m256 sum = _mm256_loadu_ps(acc[r] + h * 8);
        _mm256_storeu_ps(acc[r] + h * 8,
                         _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot[h][r]), sum));
      }
    }
  }
}

// R rows from `t` times bands [band, band_end), at most kGroupBands of them.
template <int R>
HEARTH_AVX2_INLINE void PairTile(const MatmulQ8Args& args, uint32_t band, uint32_t band_end,
                                 size_t t) {
  const size_t blocks = args.x.cols / kQ8BlockValues;
  const uint64_t band_bytes = Q8BandBytes(args.x.cols);
  const auto* w = reinterpret_cast<const uint8_t*>(args.w);
  float acc[kGroupBands][R][kBandRows] = {};
  PairRows<R> pairs;
  for (size_t first = 0; first < blocks; first += kChunkBlocks) {
    const size_t count = blocks - first < kChunkBlocks ? blocks - first : kChunkBlocks;
    PairRows<R>::Fill(pairs, args.x, t, first, count);
    for (uint32_t b = band; b < band_end; ++b) {
      AddPairChunk<R>(w + b * band_bytes, blocks, first, count, pairs, args.x.scale + t * blocks,
                      acc[b - band]);
    }
  }
  for (uint32_t b = band; b < band_end; ++b) {
    for (size_t r = 0; r < R; ++r) StoreBand(args, b, t + r, acc[b - band][r]);
  }
}

// Groups of bands outside, tiles of three or four rows inside (five rows are three and two).
HEARTH_AVX2 __attribute__((noinline)) void MatmulQ8Pairs(const MatmulQ8Args& args) {
  for (uint32_t band = args.band_begin; band < args.band_end; band += kGroupBands) {
    const uint32_t end = args.band_end - band < kGroupBands ? args.band_end : band + kGroupBands;
    for (uint32_t t = 0; t < args.x.rows;) {
      const uint32_t left = args.x.rows - t;
      const uint32_t tiles_left = (left + kPairRows - 1) / kPairRows;
      const uint32_t height = (left + tiles_left - 1) / tiles_left;
      if (height == 4) {
        PairTile<4>(args, band, end, t);
      } else if (height == 3) {
        PairTile<3>(args, band, end, t);
      } else {
        PairTile<2>(args, band, end, t);
      }
      t += height;
    }
  }
}

}  // namespace

HEARTH_AVX2 void MatmulQ8(const MatmulQ8Args& args) {
  if (args.x.rows > 2) return MatmulQ8Pairs(args);
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    if (args.x.rows == 1) {
      Q8Tile<1>(args, band);
    } else {
      Q8Tile<2>(args, band);
    }
  }
}

}  // namespace hearth::avx2
