// Row-major fp32 or bf16 matrix times fp32 rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// Activation rows go in groups that fit the L2 cache; for each group the weights are read once, a
// few of their rows at a time, and multiplied in register tiles of N weight rows by R activation
// rows.
#include "cpu_kernels/avx512/kernels.h"
#include "cpu_kernels/avx512/target.h"

namespace hearth::avx512 {
namespace {

// Activations of one group: half of a 512 KiB second-level cache, and at least one tile.
constexpr size_t kGroupBytes = 256 * 1024;
constexpr uint32_t kTileRows = 6;

struct Bf16Rows {
  static constexpr size_t kBytes = 2;
  HEARTH_AVX512_INLINE __m512 Load(const std::byte* w) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
  HEARTH_AVX512_INLINE __m512 LoadMasked(__mmask16 lanes, const std::byte* w) {
    const __m256i codes = _mm256_maskz_loadu_epi16(lanes, w);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
};

struct F32Rows {
  static constexpr size_t kBytes = 4;
  HEARTH_AVX512_INLINE __m512 Load(const std::byte* w) { return _mm512_loadu_ps(w); }
  HEARTH_AVX512_INLINE __m512 LoadMasked(__mmask16 lanes, const std::byte* w) {
    return _mm512_maskz_loadu_ps(lanes, w);
  }
};

// Lanes j and j+8, then j and j+4, j+2, j+1.
HEARTH_AVX512_INLINE float SumLanes(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

// Weight rows n .. n+N-1 times activation rows t .. t+R-1.
template <class Weights, int N, int R>
HEARTH_AVX512 __attribute__((noinline)) void RowsTile(const MatmulRowsArgs& args, size_t n,
                                                      size_t t) {
  const size_t cols = args.cols;
  const std::byte* w = args.w + n * cols * Weights::kBytes;
  const float* x = args.x + t * args.x_stride;
  __m512 acc[N][R];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[i][r] = _mm512_setzero_ps();
  }
  const size_t whole = cols / 16 * 16;
  for (size_t k = 0; k < whole; k += 16) {
    __m512 xs[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) xs[r] = _mm512_loadu_ps(x + r * args.x_stride + k);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const __m512 ws = Weights::Load(w + (i * cols + k) * Weights::kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[i][r] = _mm512_fmadd_ps(ws, xs[r], acc[i][r]);
    }
  }
  if (whole < cols) {  // lanes past the end keep their sum
    const auto lanes = static_cast<__mmask16>((1u << (cols - whole)) - 1);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const __m512 ws = Weights::LoadMasked(lanes, w + (i * cols + whole) * Weights::kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 xs = _mm512_maskz_loadu_ps(lanes, x + r * args.x_stride + whole);
        acc[i][r] = _mm512_mask3_fmadd_ps(ws, xs, acc[i][r], lanes);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) args.y[(t + r) * args.y_stride + n + i] = SumLanes(acc[i][r]);
  }
}

// N weight rows times activation rows [begin, end), in tiles of nearly equal height.
template <class Weights, int N>
HEARTH_AVX512_INLINE void RowsBlock(const MatmulRowsArgs& args, size_t n, size_t begin,
                                    size_t end) {
  for (size_t t = begin; t < end;) {
    const size_t tiles_left = (end - t + kTileRows - 1) / kTileRows;
    const size_t height = (end - t + tiles_left - 1) / tiles_left;
    switch (height) {
      case 1:
        RowsTile<Weights, N, 1>(args, n, t);
        break;
      case 2:
        RowsTile<Weights, N, 2>(args, n, t);
        break;
      case 3:
        RowsTile<Weights, N, 3>(args, n, t);
        break;
      case 4:
        RowsTile<Weights, N, 4>(args, n, t);
        break;
      case 5:
        RowsTile<Weights, N, 5>(args, n, t);
        break;
      default:
        RowsTile<Weights, N, 6>(args, n, t);
        break;
    }
    t += height;
  }
}

template <class Weights>
HEARTH_AVX512_INLINE void MatmulRowMajor(const MatmulRowsArgs& args) {
  const size_t row_bytes = size_t{args.cols} * sizeof(float);
  const size_t fitting = row_bytes == 0 ? 0 : kGroupBytes / row_bytes / kTileRows * kTileRows;
  const size_t group = fitting < kTileRows ? kTileRows : fitting;
  for (size_t begin = 0; begin < args.rows; begin += group) {
    const size_t end = begin + group < args.rows ? begin + group : args.rows;
    size_t n = args.row_begin;
    if (end - begin == 1) {  // eight chains of additions in flight
      for (; n + 8 <= args.row_end; n += 8) RowsTile<Weights, 8, 1>(args, n, begin);
    }
    for (; n + 4 <= args.row_end; n += 4) RowsBlock<Weights, 4>(args, n, begin, end);
    for (; n < args.row_end; ++n) RowsBlock<Weights, 1>(args, n, begin, end);
  }
}

}  // namespace

HEARTH_AVX512 void MatmulBf16(const MatmulRowsArgs& args) { MatmulRowMajor<Bf16Rows>(args); }
HEARTH_AVX512 void MatmulF32(const MatmulRowsArgs& args) { MatmulRowMajor<F32Rows>(args); }

}  // namespace hearth::avx512
