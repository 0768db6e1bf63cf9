// Row-major fp32 or bf16 matrix times fp32 rows. Contract: cpu_kernels/ops/matmul.h; definition:
// cpu_kernels/scalar/matmul.cc.
//
// Activation rows go in groups that fit the L2 cache; for each group the weights are read once, a
// few of their rows at a time, and multiplied in register tiles of N weight rows by R activation
// rows. The sixteen lanes of the definition are two registers. A tile asks for the weights of the
// next one meanwhile: a row is a few KiB, too short a stream for the processor to foresee.
#include <cstring>

#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/target.h"

namespace hearth::avx2 {
namespace {

// Activations of one group: half of a 512 KiB second-level cache, and at least one tile.
constexpr size_t kGroupBytes = 256 * 1024;
constexpr uint32_t kTileRows = 3;

struct Bf16Rows {
  static constexpr size_t kBytes = 2;
  HEARTH_AVX2_INLINE __m256 Load(const std::byte* w) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
};

struct F32Rows {
  static constexpr size_t kBytes = 4;
  HEARTH_AVX2_INLINE __m256 Load(const std::byte* w) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  }
};

// Lanes j and j+8, then j and j+4, j+2, j+1.
HEARTH_AVX2_INLINE float SumLanes(__m256 low, __m256 high) {
  const __m256 a = _mm256_add_ps(low, high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

// The last `count` columns, fewer than sixteen; the other lanes keep their sum.
template <class Weights, int N, int R>
HEARTH_AVX2_INLINE void AddTail(const std::byte* w, size_t w_stride_bytes, const float* x,
                                size_t x_stride, uint32_t count, __m256 (&acc)[N][R][2]) {
  __m256 xs[R][2];
  for (int r = 0; r < R; ++r) {
    float values[16] = {};
    std::memcpy(values, x + r * x_stride, count * sizeof(float));
    xs[r][0] = _mm256_loadu_ps(values);
    xs[r][1] = _mm256_loadu_ps(values + 8);
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    std::byte codes[16 * Weights::kBytes] = {};
    std::memcpy(codes, w + i * w_stride_bytes, count * Weights::kBytes);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 ws = Weights::Load(codes + half * 8 * Weights::kBytes);
      const __m256i left = _mm256_set1_epi32(static_cast<int32_t>(count) - half * 8);
      const __m256 present = _mm256_castsi256_ps(_mm256_cmpgt_epi32(left, lane));
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
        const __m256 sum = _mm256_fmadd_ps(ws, xs[r][half], acc[i][r][half]);
        acc[i][r][half] = _mm256_blendv_ps(acc[i][r][half], sum, present);
      }
    }
  }
}

// Weight rows n .. n+N-1 times activation rows t .. t+R-1.
template <class Weights, int N, int R>
HEARTH_AVX2 __attribute__((noinline)) void RowsTile(const MatmulRowsArgs& args, size_t n,
                                                    size_t t) {
  const size_t cols = args.cols;
  const std::byte* w = args.w + n * cols * Weights::kBytes;
  const float* x = args.x + t * args.x_stride;
  __m256 acc[N][R][2];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) acc[i][r][0] = acc[i][r][1] = _mm256_setzero_ps();
  }
  const size_t whole = cols / 16 * 16;
  for (size_t k = 0; k < whole; k += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const std::byte* next = w + ((i + N) * cols + k) * Weights::kBytes;
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256 ws[N];
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        ws[i] = Weights::Load(w + (i * cols + k + half * 8) * Weights::kBytes);
      }
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
        const __m256 xs = _mm256_loadu_ps(x + r * args.x_stride + k + half * 8);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) acc[i][r][half] = _mm256_fmadd_ps(ws[i], xs, acc[i][r][half]);
      }
    }
  }
  if (whole < cols) {
    AddTail<Weights, N, R>(w + whole * Weights::kBytes, cols * Weights::kBytes, x + whole,
                           args.x_stride, static_cast<uint32_t>(cols - whole), acc);
  }
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      args.y[(t + r) * args.y_stride + n + i] = SumLanes(acc[i][r][0], acc[i][r][1]);
    }
  }
}

// N weight rows times activation rows [begin, end), in tiles of nearly equal height.
template <class Weights, int N>
HEARTH_AVX2_INLINE void RowsBlock(const MatmulRowsArgs& args, size_t n, size_t begin, size_t end) {
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
      default:
        RowsTile<Weights, N, 3>(args, n, t);
        break;
    }
    t += height;
  }
}

template <class Weights>
HEARTH_AVX2_INLINE void MatmulRowMajor(const MatmulRowsArgs& args) {
  const size_t row_bytes = size_t{args.cols} * sizeof(float);
  const size_t fitting = row_bytes == 0 ? 0 : kGroupBytes / row_bytes / kTileRows * kTileRows;
  const size_t group = fitting < kTileRows ? kTileRows : fitting;
  for (size_t begin = 0; begin < args.rows; begin += group) {
    const size_t end = begin + group < args.rows ? begin + group : args.rows;
    size_t n = args.row_begin;
    if (end - begin == 1) {  // eight chains of additions in flight
      for (; n + 4 <= args.row_end; n += 4) RowsTile<Weights, 4, 1>(args, n, begin);
    }
    for (; n + 2 <= args.row_end; n += 2) RowsBlock<Weights, 2>(args, n, begin, end);
    for (; n < args.row_end; ++n) RowsBlock<Weights, 1>(args, n, begin, end);
  }
}

}  // namespace

HEARTH_AVX2 void MatmulBf16(const MatmulRowsArgs& args) { MatmulRowMajor<Bf16Rows>(args); }
HEARTH_AVX2 void MatmulF32(const MatmulRowsArgs& args) { MatmulRowMajor<F32Rows>(args); }

}  // namespace hearth::avx2
