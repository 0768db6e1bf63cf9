// Q8 matrix times quantised rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// Codes are unsigned (value + 128), as vpdpbusd wants them; 128 times the sum of the activations is
// taken off beforehand. Bands outside, tiles of up to eight rows inside: a band's weights are read
// from memory once.
#include <cstring>

#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/avx512/target.h"
#include "pack/format/matrix_layout.h"

namespace hearth::avx512 {
namespace {

constexpr uint32_t kTileRows = 8;

HEARTH_AVX512_INLINE __m512i BroadcastDword(const int8_t* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return _mm512_set1_epi32(value);
}

// R rows from `t`, B bands from `band`.
template <int R, int B>
HEARTH_AVX512 __attribute__((noinline)) void Q8Tile(const MatmulQ8Args& args, uint32_t band,
                                                    size_t t) {
  const size_t blocks = args.x.cols / kQ8BlockValues;
  const uint64_t band_bytes = Q8BandBytes(args.x.cols);
  const auto* w = reinterpret_cast<const uint8_t*>(args.w) + band * band_bytes;
  const int8_t* q = args.x.q + t * blocks * kQ8BlockValues;
  const float* x_scale = args.x.scale + t * blocks;
  const int32_t* sum16 = args.x.sum16 + t * blocks * 2;
  __m512 acc[B][R];
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[b][r] = _mm512_setzero_ps();
  }
  for (size_t i = 0; i < blocks; ++i) {
    __m512i dot[B][R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t* sums = sum16 + (r * blocks + i) * 2;
      const __m512i bias = _mm512_set1_epi32((sums[0] + sums[1]) * -128);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) dot[b][r] = bias;
    }
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      __m512i line[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b)
        line[b] = _mm512_loadu_si512(w + b * band_bytes + i * 512 + step * 64);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i x = BroadcastDword(q + (r * blocks + i) * kQ8BlockValues + step * 4);
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) dot[b][r] = _mm512_dpbusd_epi32(dot[b][r], line[b], x);
      }
    }
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      const uint8_t* scales = w + b * band_bytes + blocks * 512 + i * 32;
      const __m512 w_scale =
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 scale = _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scale[r * blocks + i]));
        acc[b][r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot[b][r]), acc[b][r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    const uint32_t left = args.out_rows - (band + b) * kBandRows;
    const auto lanes = static_cast<__mmask16>(left >= kBandRows ? 0xFFFFu : (1u << left) - 1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      _mm512_mask_storeu_ps(args.y + (t + r) * args.y_stride + size_t{band + b} * kBandRows, lanes,
                            acc[b][r]);
    }
  }
}

// B bands times all rows, in tiles of nearly equal height.
template <int B>
HEARTH_AVX512_INLINE void Q8Bands(const MatmulQ8Args& args, uint32_t band) {
  const uint32_t rows = args.x.rows;
  for (uint32_t t = 0; t < rows;) {
    const uint32_t tiles_left = (rows - t + kTileRows - 1) / kTileRows;
    const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
    switch (height) {
      case 1:
        Q8Tile<1, B>(args, band, t);
        break;
      case 2:
        Q8Tile<2, B>(args, band, t);
        break;
      case 3:
        Q8Tile<3, B>(args, band, t);
        break;
      case 4:
        Q8Tile<4, B>(args, band, t);
        break;
      case 5:
        Q8Tile<5, B>(args, band, t);
        break;
      case 6:
        Q8Tile<6, B>(args, band, t);
        break;
      case 7:
        Q8Tile<7, B>(args, band, t);
        break;
      default:
        Q8Tile<8, B>(args, band, t);
        break;
    }
    t += height;
  }
}

}  // namespace

HEARTH_AVX512 void MatmulQ8(const MatmulQ8Args& args) {
  uint32_t band = args.band_begin;
  if (args.x.rows == 1) {
    for (; band + 4 <= args.band_end; band += 4) Q8Tile<1, 4>(args, band, 0);
  } else if (args.x.rows == 2) {
    for (; band + 4 <= args.band_end; band += 4) Q8Tile<2, 4>(args, band, 0);
  }
  for (; band + 2 <= args.band_end; band += 2) Q8Bands<2>(args, band);
  for (; band < args.band_end; ++band) Q8Bands<1>(args, band);
}

}  // namespace hearth::avx512
