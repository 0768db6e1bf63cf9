// The trellis step for AVX-512BW: 32 groups at a time, their survivors' metrics in registers.
#include "pack/quant/xt_trellis_step.h"

// GCC 12 takes its own undefined registers for uses of uninitialised variables.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "runtime/base/check.h"

#define HEARTH_TARGET __attribute__((target("avx512f,avx512bw")))
#define HEARTH_INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw")))

namespace hearth {
namespace {

constexpr uint32_t kLanes = 32;

// spread[h][lane] = errors[h ^ hash of lane]. Within a coset of the lanes' hashes the vectors are
// permutations of each other.
HEARTH_INLINE void SpreadErrors(const XtStepArgs& args, uint16_t* spread) {
  const __m512i lane_index =
      _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                       12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (const uint8_t head : args.phase->coset_heads) {
    alignas(64) uint16_t first[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      first[lane] = args.errors[head ^ args.phase->hash_of_lane[lane]];
    }
    const __m512i vector = _mm512_load_si512(first);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const __m512i index =
          _mm512_xor_si512(lane_index, _mm512_set1_epi16(static_cast<int16_t>(lane)));
      _mm512_store_si512(spread + (head ^ args.phase->hash_of_lane[lane]) * kLanes,
                         _mm512_permutexvar_epi16(index, vector));
    }
  }
}

// rows[c] holds symbol c of 32 groups; to = the symbols of group 0, of group 1, ...
template <int kBits>
HEARTH_INLINE void StoreByGroup(__m512i* rows, uint16_t* to) {
  constexpr int kRows = 1 << kBits;
  __m512i next[kRows];
#pragma GCC unroll 4
  for (int round = 0; round < kBits; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows / 2; ++i) {
      next[2 * i] = _mm512_unpacklo_epi16(rows[i], rows[i + kRows / 2]);
      next[2 * i + 1] = _mm512_unpackhi_epi16(rows[i], rows[i + kRows / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) rows[i] = next[i];
  }
  // Lane l (of 128 bits) of row k now holds the values 8 * (kRows * l + k) and the 7 after it.
#pragma GCC unroll 4
  for (int q = 0; q < kRows / 4; ++q) {
    const __m512i* const r = rows + 4 * q;
    const __m512i low01 = _mm512_shuffle_i32x4(r[0], r[1], 0x44);
    const __m512i low23 = _mm512_shuffle_i32x4(r[2], r[3], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(r[0], r[1], 0xEE);
    const __m512i high23 = _mm512_shuffle_i32x4(r[2], r[3], 0xEE);
    uint16_t* const at = to + 32 * q;
    _mm512_store_si512(at, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_store_si512(at + 8 * kRows, _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_store_si512(at + 16 * kRows, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_store_si512(at + 24 * kRows, _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}

template <int kBits>
HEARTH_TARGET uint16_t Step(const XtStepArgs& args) {
  constexpr uint32_t kBranches = 1u << kBits;
  constexpr uint32_t kVectorBytes = kLanes * sizeof(uint16_t);
  const XtTrellis& trellis = *args.trellis;
  const XtTrellis::Phase& phase = *args.phase;
  alignas(64) uint16_t spread[256 * kLanes];
  SpreadErrors(args, spread);
  const char* const errors = reinterpret_cast<const char*>(spread);
  uint32_t dropped_at[kBranches];  // offsets of vectors: they combine by exclusive or
  for (uint32_t d = 0; d < kBranches; ++d) dropped_at[d] = phase.hash_of_dropped[d] * kVectorBytes;

  const __m512i mask = _mm512_set1_epi16(kBranches - 1);
  const __m512i floor = _mm512_set1_epi16(static_cast<int16_t>(args.floor));
  const uint32_t groups = trellis.group_count();
  __m512i least = _mm512_set1_epi16(-1);
  for (uint32_t g = 0; g < groups; g += kLanes) {
    __m512i metric[kBranches];
#pragma GCC unroll 16
    for (uint32_t d = 0; d < kBranches; ++d) {
      const __m512i before =
          _mm512_loadu_si512(args.from + trellis.group_offset[g / 16] + trellis.dropped_offset[d]);
      // (before - floor) with the low bits of d: (a & ~mask) | (d & mask)
      metric[d] = _mm512_ternarylogic_epi32(_mm512_subs_epu16(before, floor), mask,
                                            _mm512_set1_epi16(static_cast<int16_t>(d)), 0xBA);
    }
    __m512i rows[kBranches];
    const uint32_t group_at = phase.hash_of_high[g / 16] * kVectorBytes;
#pragma GCC unroll 1
    for (uint32_t word = 0; word < kBranches / kXtFieldsPerBackWord; ++word) {
      __m512i back = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (uint32_t field = 0; field < kXtFieldsPerBackWord; ++field) {
        const uint32_t c = word * kXtFieldsPerBackWord + field;
        const uint32_t at = group_at ^ (phase.hash_of_symbol[c] * kVectorBytes);
        __m512i best = _mm512_set1_epi16(static_cast<int16_t>(kXtMetricMax));
#pragma GCC unroll 16
        for (uint32_t d = 0; d < kBranches; ++d) {
          best = _mm512_min_epu16(
              best, _mm512_add_epi16(metric[d], _mm512_load_si512(errors + (at ^ dropped_at[d]))));
        }
        rows[c] = best;
        least = _mm512_min_epu16(least, best);
        back = _mm512_or_si512(back, _mm512_slli_epi16(_mm512_and_si512(best, mask),
                                                       static_cast<uint32_t>(kBits) * field));
      }
      _mm512_storeu_si512(args.back + size_t{word} * groups + g, back);
    }
    StoreByGroup<kBits>(rows, args.to + (size_t{g} << kBits));
  }
  alignas(64) uint16_t lanes[kLanes];
  _mm512_store_si512(lanes, least);
  uint16_t smallest = 0xFFFF;
  for (const uint16_t lane : lanes) smallest = lane < smallest ? lane : smallest;
  return static_cast<uint16_t>(smallest & ~(kBranches - 1));
}

}  // namespace

uint16_t XtStepAvx512(const XtStepArgs& args) {
  const uint32_t bits = args.trellis->code.bits;
  return bits == 4 ? Step<4>(args) : (bits == 3 ? Step<3>(args) : Step<2>(args));
}

}  // namespace hearth
