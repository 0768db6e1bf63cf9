// Q8 matrix times quantised rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// Codes are unsigned (value + 128), as vpdpbusd wants them; 128 times the sum of the activations is
// taken off beforehand. Up to eight rows are a stream of weights, limited by memory; more go in
// tiles of up to eight rows by two bands, limited by arithmetic.
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

// acc = R rows from `t` times B bands from `band`. With kAhead the next B bands are asked for
// meanwhile: the processor's own prefetching stays too near when there is work for each line, and
// is best left alone when there is little.
template <int R, int B, bool kAhead>
HEARTH_AVX512_INLINE void Multiply(const MatmulQ8Args& args, uint32_t band, size_t t,
                                   __m512 (&acc)[B][R]) {
  const size_t blocks = args.x.cols / kQ8BlockValues;
  const uint64_t band_bytes = Q8BandBytes(args.x.cols);
  const auto* w = reinterpret_cast<const uint8_t*>(args.w) + band * band_bytes;
  const int8_t* q = args.x.q + t * blocks * kQ8BlockValues;
  const float* x_scale = args.x.scale + t * blocks;
  const int32_t* sum16 = args.x.sum16 + t * blocks * 2;
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
      for (int b = 0; b < B; ++b) {
        const uint8_t* at = w + b * band_bytes + i * 512 + step * 64;
        line[b] = _mm512_loadu_si512(at);
        if (kAhead) _mm_prefetch(reinterpret_cast<const char*>(at + B * band_bytes), _MM_HINT_T1);
      }
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
}

template <int R, int B>
HEARTH_AVX512_INLINE void Store(const MatmulQ8Args& args, uint32_t band, size_t t,
                                const __m512 (&acc)[B][R]) {
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

// Streams: all of R <= 8 rows times B bands from `band`.
template <int R, int B>
HEARTH_AVX512 __attribute__((noinline)) void StreamBands(const MatmulQ8Args& args, uint32_t band) {
  __m512 acc[B][R];
  Multiply<R, B, (R > 4)>(args, band, 0, acc);
  Store<R, B>(args, band, 0, acc);
}

// The more lines in flight, the nearer to the rate of the memory: four bands at once where the
// registers allow it.
template <int R>
HEARTH_AVX512_INLINE void Stream(const MatmulQ8Args& args) {
  constexpr int kBands = R <= 4 ? 4 : 2;
  uint32_t band = args.band_begin;
  for (; band + kBands <= args.band_end; band += kBands) StreamBands<R, kBands>(args, band);
  for (; band < args.band_end; ++band) StreamBands<R, 1>(args, band);
}

// Many rows: R of them from `t` times B bands.
template <int R, int B>
HEARTH_AVX512 __attribute__((noinline)) void Tile(const MatmulQ8Args& args, uint32_t band,
                                                  size_t t) {
  __m512 acc[B][R];
  Multiply<R, B, false>(args, band, t, acc);
  Store<R, B>(args, band, t, acc);
}

// B bands times all rows, in tiles of nearly equal height: a band comes from memory once.
template <int B>
HEARTH_AVX512_INLINE void Tiles(const MatmulQ8Args& args, uint32_t band) {
  const uint32_t rows = args.x.rows;
  for (uint32_t t = 0; t < rows;) {
    const uint32_t tiles_left = (rows - t + kTileRows - 1) / kTileRows;
    const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
    switch (height) {
      case 4:
        Tile<4, B>(args, band, t);
        break;
      case 5:
        Tile<5, B>(args, band, t);
        break;
      case 6:
        Tile<6, B>(args, band, t);
        break;
      case 7:
        Tile<7, B>(args, band, t);
        break;
      default:
        Tile<8, B>(args, band, t);
        break;
    }
    t += height;
  }
}

HEARTH_AVX512 __attribute__((noinline)) void ManyRows(const MatmulQ8Args& args) {
  uint32_t band = args.band_begin;
  for (; band + 2 <= args.band_end; band += 2) Tiles<2>(args, band);
  if (band < args.band_end) Tiles<1>(args, band);
}

}  // namespace

HEARTH_AVX512 void MatmulQ8(const MatmulQ8Args& args) {
  switch (args.x.rows) {
    case 0:
      return;
    case 1:
      return Stream<1>(args);
    case 2:
      return Stream<2>(args);
    case 3:
      return Stream<3>(args);
    case 4:
      return Stream<4>(args);
    case 5:
      return Stream<5>(args);
    case 6:
      return Stream<6>(args);
    case 7:
      return Stream<7>(args);
    case 8:
      return Stream<8>(args);
    default:
      return ManyRows(args);
  }
}

}  // namespace hearth::avx512
