// The trellis step for AVX2: 16 groups at a time.
#include <immintrin.h>

#include "pack/quant/xt_trellis_step.h"

#define HEARTH_TARGET __attribute__((target("avx2")))
#define HEARTH_INLINE static inline __attribute__((always_inline, target("avx2")))

namespace hearth {
namespace {

constexpr uint32_t kLanes = 16;

// spread[h][lane] = errors[h ^ hash of lane].
HEARTH_INLINE void SpreadErrors(const XtStepArgs& args, uint16_t* spread) {
  // Lane i takes lane i ^ x: bytes within each half for the low three bits of x, halves for the
  // fourth.
  alignas(32) uint8_t shuffle[8][32];
  for (uint32_t x = 0; x < 8; ++x) {
    for (uint32_t i = 0; i < 32; ++i) shuffle[x][i] = static_cast<uint8_t>(i % 16 ^ 2 * x);
  }
  for (const uint8_t head : args.phase->half_coset_heads) {
    alignas(32) uint16_t first[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      first[lane] = args.errors[head ^ args.phase->hash_of_lane[lane]];
    }
    const __m256i vector = _mm256_load_si256(reinterpret_cast<const __m256i*>(first));
    const __m256i swapped = _mm256_permute2x128_si256(vector, vector, 1);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const __m256i index = _mm256_load_si256(reinterpret_cast<const __m256i*>(shuffle[lane % 8]));
      _mm256_store_si256(
          reinterpret_cast<__m256i*>(spread + (head ^ args.phase->hash_of_lane[lane]) * kLanes),
          _mm256_shuffle_epi8(lane < 8 ? vector : swapped, index));
    }
  }
}

// rows[c] holds symbol c of 16 groups; to = the symbols of group 0, of group 1, ...
template <int kBits>
HEARTH_INLINE void StoreByGroup(__m256i* rows, uint16_t* to) {
  constexpr int kRows = 1 << kBits;
  __m256i next[kRows];
#pragma GCC unroll 4
  for (int round = 0; round < kBits; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows / 2; ++i) {
      next[2 * i] = _mm256_unpacklo_epi16(rows[i], rows[i + kRows / 2]);
      next[2 * i + 1] = _mm256_unpackhi_epi16(rows[i], rows[i + kRows / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) rows[i] = next[i];
  }
  // Half l of row k now holds the values 8 * (kRows * l + k) and the 7 after it.
#pragma GCC unroll 8
  for (int q = 0; q < kRows / 2; ++q) {
    const __m256i low = _mm256_permute2x128_si256(rows[2 * q], rows[2 * q + 1], 0x20);
    const __m256i high = _mm256_permute2x128_si256(rows[2 * q], rows[2 * q + 1], 0x31);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + 16 * q), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + 8 * kRows + 16 * q), high);
  }
}

template <int kBits>
HEARTH_TARGET uint16_t Step(const XtStepArgs& args) {
  constexpr uint32_t kBranches = 1u << kBits;
  constexpr uint32_t kVectorBytes = kLanes * sizeof(uint16_t);
  const XtTrellis& trellis = *args.trellis;
  const XtTrellis::Phase& phase = *args.phase;
  alignas(32) uint16_t spread[256 * kLanes];
  SpreadErrors(args, spread);
  const char* const errors = reinterpret_cast<const char*>(spread);
  uint32_t dropped_at[kBranches];  // offsets of vectors: they combine by exclusive or
  for (uint32_t d = 0; d < kBranches; ++d) dropped_at[d] = phase.hash_of_dropped[d] * kVectorBytes;

  const __m256i mask = _mm256_set1_epi16(kBranches - 1);
  const __m256i floor = _mm256_set1_epi16(static_cast<int16_t>(args.floor));
  const uint32_t groups = trellis.group_count();
  __m256i least = _mm256_set1_epi16(-1);
  for (uint32_t g = 0; g < groups; g += kLanes) {
    __m256i metric[kBranches];
    for (uint32_t d = 0; d < kBranches; ++d) {
      const __m256i before = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
          args.from + trellis.group_offset[g / 16] + trellis.dropped_offset[d]));
      metric[d] = _mm256_or_si256(_mm256_andnot_si256(mask, _mm256_subs_epu16(before, floor)),
                                  _mm256_set1_epi16(static_cast<int16_t>(d)));
    }
    __m256i rows[kBranches];
    const uint32_t group_at = phase.hash_of_high[g / 16] * kVectorBytes;
#pragma GCC unroll 1
    for (uint32_t word = 0; word < kBranches / kXtFieldsPerBackWord; ++word) {
      __m256i back = _mm256_setzero_si256();
#pragma GCC unroll 4
      for (uint32_t field = 0; field < kXtFieldsPerBackWord; ++field) {
        const uint32_t c = word * kXtFieldsPerBackWord + field;
        const uint32_t at = group_at ^ (phase.hash_of_symbol[c] * kVectorBytes);
        const auto sum = [&](uint32_t d) __attribute__((always_inline, target("avx2"))) {
          return _mm256_add_epi16(
              metric[d],
              _mm256_load_si256(reinterpret_cast<const __m256i*>(errors + (at ^ dropped_at[d]))));
        };
        __m256i best = _mm256_set1_epi16(static_cast<int16_t>(kXtMetricMax));
#pragma GCC unroll 16
        for (uint32_t d = 0; d < kBranches; ++d) best = _mm256_min_epu16(best, sum(d));
        rows[c] = best;
        least = _mm256_min_epu16(least, best);
        back = _mm256_or_si256(
            back, _mm256_slli_epi16(_mm256_and_si256(best, mask), static_cast<int>(kBits * field)));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.back + size_t{word} * groups + g), back);
    }
    StoreByGroup<kBits>(rows, args.to + (size_t{g} << kBits));
  }
  alignas(32) uint16_t lanes[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), least);
  uint16_t smallest = 0xFFFF;
  for (const uint16_t lane : lanes) smallest = lane < smallest ? lane : smallest;
  return static_cast<uint16_t>(smallest & ~(kBranches - 1));
}

}  // namespace

uint16_t XtStepAvx2(const XtStepArgs& args) {
  const uint32_t bits = args.trellis->code.bits;
  return bits == 4 ? Step<4>(args) : (bits == 3 ? Step<3>(args) : Step<2>(args));
}

}  // namespace hearth
