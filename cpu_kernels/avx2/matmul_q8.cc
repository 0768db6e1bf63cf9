// Q8 matrix times quantised rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// maddubs wants unsigned times signed bytes and saturates at 16 bits. With |w| and the activation
// under w's sign, two products are at most 2 * 128 * 127 = 32512: they fit. Bands outside, tiles of
// up to four rows inside, a band as two halves of eight rows.
#include <cstring>

#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/target.h"
#include "pack/format/matrix_layout.h"

namespace hearth::avx2 {
namespace {

constexpr uint32_t kTileRows = 4;

HEARTH_AVX2_INLINE __m256i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm256_set1_epi32(value);
}

// Block i of R rows times H halves of the band from half `first`.
template <int R, int H>
HEARTH_AVX2_INLINE void DotBlock(const uint8_t* codes, const int8_t* q, size_t q_stride,
                                 __m256i (&dot)[H][R]) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) dot[h][r] = _mm256_setzero_si256();
  }
#pragma GCC unroll 8
  for (int step = 0; step < 8; ++step) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const auto* line = reinterpret_cast<const __m256i*>(codes + step * 64 + h * 32);
      const __m256i w =
          _mm256_xor_si256(_mm256_loadu_si256(line), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i x = _mm256_sign_epi8(BroadcastDword(q + r * q_stride + step * 4), w);
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
        dot[h][r] = _mm256_add_epi32(dot[h][r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }
}

// R rows from `t`, H halves from half `first` of one band.
template <int R, int H>
HEARTH_AVX2 __attribute__((noinline)) void Q8Tile(const MatmulQ8Args& args, uint32_t band,
                                                  uint32_t first, size_t t) {
  const size_t blocks = args.x.cols / kQ8BlockValues;
  const auto* w = reinterpret_cast<const uint8_t*>(args.w) + band * Q8BandBytes(args.x.cols);
  const int8_t* q = args.x.q + t * blocks * kQ8BlockValues;
  const float* x_scale = args.x.scale + t * blocks;
  __m256 acc[H][R];
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) acc[h][r] = _mm256_setzero_ps();
  }
  for (size_t i = 0; i < blocks; ++i) {
    __m256i dot[H][R];
    DotBlock<R, H>(w + i * 512 + first * 32, q + i * kQ8BlockValues, blocks * kQ8BlockValues, dot);
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const uint8_t* scales = w + blocks * 512 + i * 32 + (first + h) * 16;
      const __m256 w_scale =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_mul_ps(w_scale, _mm256_set1_ps(x_scale[r * blocks + i]));
        acc[h][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot[h][r]), acc[h][r]);
      }
    }
  }
  for (int h = 0; h < H; ++h) {
    const uint32_t row = band * kBandRows + (first + h) * 8;
    for (int r = 0; r < R; ++r) {
      float* y = args.y + (t + r) * args.y_stride + row;
      if (row + 8 <= args.out_rows) {
        _mm256_storeu_ps(y, acc[h][r]);
      } else if (row < args.out_rows) {
        float lanes[8];
        _mm256_storeu_ps(lanes, acc[h][r]);
        std::memcpy(y, lanes, (args.out_rows - row) * sizeof(float));
      }
    }
  }
}

}  // namespace

HEARTH_AVX2 void MatmulQ8(const MatmulQ8Args& args) {
  const uint32_t rows = args.x.rows;
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    for (uint32_t t = 0; t < rows;) {
      const uint32_t tiles_left = (rows - t + kTileRows - 1) / kTileRows;
      const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
      switch (height) {
        case 1:
          Q8Tile<1, 2>(args, band, 0, t);
          break;
        case 2:
          Q8Tile<2, 2>(args, band, 0, t);
          break;
        case 3:
          Q8Tile<3, 1>(args, band, 0, t);
          Q8Tile<3, 1>(args, band, 1, t);
          break;
        default:
          Q8Tile<4, 1>(args, band, 0, t);
          Q8Tile<4, 1>(args, band, 1, t);
          break;
      }
      t += height;
    }
  }
}

}  // namespace hearth::avx2
