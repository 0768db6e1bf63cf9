// Row-major fp32 or bf16 matrix times fp32 rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// Activation rows go in groups that fit the L2 cache; for each group the weights are read once, a
// few of their rows at a time, and multiplied in register tiles of N weight rows by R activation
// rows. The tile that reads weights for the first time asks for those of the next tile meanwhile: a
// row is a few KiB, too short a stream for the processor to foresee.
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
  // Thirty-two values from one line: a permutation puts each into the upper half of its lane.
  HEARTH_AVX512_INLINE void LoadPair(const std::byte* w, __m512 (&out)[2]) {
    const __m512i codes = _mm512_loadu_si512(w);
    const __m512i twice = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8,
                                           8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    constexpr __mmask32 kUpper = 0xAAAAAAAAu;
    const __m512i later = _mm512_add_epi16(twice, _mm512_set1_epi16(16));
    out[0] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpper, twice, codes));
    out[1] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpper, later, codes));
  }
};

struct F32Rows {
  static constexpr size_t kBytes = 4;
  HEARTH_AVX512_INLINE __m512 Load(const std::byte* w) { return _mm512_loadu_ps(w); }
  HEARTH_AVX512_INLINE __m512 LoadMasked(__mmask16 lanes, const std::byte* w) {
    return _mm512_maskz_loadu_ps(lanes, w);
  }
  HEARTH_AVX512_INLINE void LoadPair(const std::byte* w, __m512 (&out)[2]) {
    out[0] = _mm512_loadu_ps(w);
    out[1] = _mm512_loadu_ps(w + 64);
  }
};

// Lanes j and j+8, then j and j+4, j+2, j+1.
HEARTH_AVX512_INLINE float SumLanes(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

// Columns [k, k + 32) of N weight rows times R activation rows.
template <class Weights, int N, int R, bool kAhead>
HEARTH_AVX512_INLINE void AddPair(const std::byte* w, size_t w_stride_bytes, const float* x,
                                  size_t x_stride, __m512 (&acc)[N][R]) {
  __m512 xs[2][R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    xs[0][r] = _mm512_loadu_ps(x + r * x_stride);
    xs[1][r] = _mm512_loadu_ps(x + r * x_stride + 16);
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    const std::byte* at = w + i * w_stride_bytes;
    __m512 ws[2];
    Weights::LoadPair(at, ws);
    if (kAhead) {
#pragma GCC unroll 2
      for (size_t line = 0; line < 32 * Weights::kBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + N * w_stride_bytes + line), _MM_HINT_T1);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      acc[i][r] = _mm512_fmadd_ps(ws[0], xs[0][r], acc[i][r]);
      acc[i][r] = _mm512_fmadd_ps(ws[1], xs[1][r], acc[i][r]);
    }
  }
}

// Weight rows n .. n+N-1 times activation rows t .. t+R-1.
template <class Weights, int N, int R, bool kAhead>
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
  size_t k = 0;
  if constexpr (R <= 4) {  // more rows leave no registers for a pair
    for (; k + 32 <= whole; k += 32) {
      AddPair<Weights, N, R, kAhead>(w + k * Weights::kBytes, cols * Weights::kBytes, x + k,
                                     args.x_stride, acc);
    }
  }
  for (; k < whole; k += 16) {
    __m512 xs[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) xs[r] = _mm512_loadu_ps(x + r * args.x_stride + k);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const std::byte* at = w + (i * cols + k) * Weights::kBytes;
      if (kAhead) {
        _mm_prefetch(reinterpret_cast<const char*>(at + N * cols * Weights::kBytes), _MM_HINT_T1);
      }
      const __m512 ws = Weights::Load(at);
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
        RowsTile<Weights, N, 1, true>(args, n, t);
        break;
      case 2:
        RowsTile<Weights, N, 2, true>(args, n, t);
        break;
      case 3:
        RowsTile<Weights, N, 3, true>(args, n, t);
        break;
      case 4:
        RowsTile<Weights, N, 4, true>(args, n, t);
        break;
      case 5:
        RowsTile<Weights, N, 5, true>(args, n, t);
        break;
      default:
        RowsTile<Weights, N, 6, true>(args, n, t);
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
    // One or two rows: as many chains of additions and lines in flight as the registers allow.
    if (end - begin == 1) {
      for (; n + 8 <= args.row_end; n += 8) RowsTile<Weights, 8, 1, true>(args, n, begin);
    } else if (end - begin == 2) {
      for (; n + 8 <= args.row_end; n += 8) RowsTile<Weights, 8, 2, true>(args, n, begin);
    }
    for (; n + 4 <= args.row_end; n += 4) RowsBlock<Weights, 4>(args, n, begin, end);
    for (; n < args.row_end; ++n) RowsBlock<Weights, 1>(args, n, begin, end);
  }
}

}  // namespace

HEARTH_AVX512 void MatmulBf16(const MatmulRowsArgs& args) { MatmulRowMajor<Bf16Rows>(args); }
HEARTH_AVX512 void MatmulF32(const MatmulRowsArgs& args) { MatmulRowMajor<F32Rows>(args); }

}  // namespace hearth::avx512
