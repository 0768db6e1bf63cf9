// fp32 rows as int8 blocks. Contract: cpu_kernels/ops/activation.h; definition: cpu_kernels/scalar.
#include <cstring>

#include "cpu_kernels/avx2/kernels.h"
#include "cpu_kernels/avx2/target.h"

namespace hearth::avx2 {
namespace {

constexpr int kParts = 4;  // vectors of eight values in a block

// The sums of sixteen int8 values each: as unsigned bytes (+128 each), added by the distance to
// zero.
HEARTH_AVX2_INLINE void StoreSums(__m256i q, int32_t* sum16) {
  const __m256i unsigned_bytes = _mm256_xor_si256(q, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256i quarters = _mm256_sad_epu8(unsigned_bytes, _mm256_setzero_si256());
  sum16[0] = _mm256_extract_epi32(quarters, 0) + _mm256_extract_epi32(quarters, 2) - 16 * 128;
  sum16[1] = _mm256_extract_epi32(quarters, 4) + _mm256_extract_epi32(quarters, 6) - 16 * 128;
}

HEARTH_AVX2_INLINE __m256i LargestOf(__m256i v) {
  v = _mm256_max_epu32(v, _mm256_permute2x128_si256(v, v, 1));
  v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4E));
  return _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xB1));  // in every lane
}

// One block; values outside `valid` (all ones or all zeros in each lane) count as zero.
HEARTH_AVX2_INLINE void QuantizeBlock(const float* x, const __m256 (&valid)[kParts], int8_t* q,
                                      float* scale, int32_t* sum16) {
  __m256 values[kParts];
  __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    values[i] = _mm256_loadu_ps(x + i * 8);
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    largest = _mm256_max_epu32(largest, _mm256_castps_si256(_mm256_and_ps(values[i], magnitude)));
  }
  const __m256 ratio =
      _mm256_div_ps(_mm256_castsi256_ps(LargestOf(largest)), _mm256_set1_ps(127.0f));
  const __m256 kept =
      _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(kScaleMantissaMask)));
  const __m256 nonzero = _mm256_cmp_ps(ratio, _mm256_set1_ps(kScaleMin), _CMP_NLT_UQ);
  const __m256 s = _mm256_and_ps(_mm256_and_ps(ratio, kept), nonzero);
  *scale = _mm256_cvtss_f32(s);
  __m256i rounded[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    __m256 r = _mm256_div_ps(values[i], s);
    r = _mm256_and_ps(r, _mm256_and_ps(nonzero, valid[i]));
    // A bound is an integer, so bounding before the rounding gives the same; NaN takes the second
    // operand.
    r = _mm256_max_ps(r, _mm256_set1_ps(-127.0f));
    r = _mm256_min_ps(r, _mm256_set1_ps(127.0f));
    rounded[i] = _mm256_cvtps_epi32(r);
  }
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                            _mm256_packs_epi32(rounded[2], rounded[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(packed, order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  StoreSums(bytes, sum16);
}

}  // namespace

HEARTH_AVX2 void QuantizeRows(const QuantizeRowsArgs& args) {
  const size_t blocks = ActivationBlocks(args.cols);
  const size_t whole = args.cols / kActivationBlockValues;
  const uint32_t tail = args.cols % kActivationBlockValues;
  __m256 all[kParts];
  __m256 present[kParts];
  for (int i = 0; i < kParts; ++i) {
    all[i] = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    const __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(i * 8));
    present[i] = _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(tail)), lane));
  }
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    const size_t first = t * blocks;
    for (size_t b = 0; b < whole; ++b) {
      QuantizeBlock(x + b * kActivationBlockValues, all,
                    args.q + (first + b) * kActivationBlockValues, args.scale + first + b,
                    args.sum16 + (first + b) * 2);
    }
    if (tail != 0) {
      float last[kActivationBlockValues] = {};
      std::memcpy(last, x + whole * kActivationBlockValues, tail * sizeof(float));
      QuantizeBlock(last, present, args.q + (first + whole) * kActivationBlockValues,
                    args.scale + first + whole, args.sum16 + (first + whole) * 2);
    }
  }
}

}  // namespace hearth::avx2
