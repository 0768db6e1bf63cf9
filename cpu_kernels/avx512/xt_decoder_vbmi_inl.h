// Decoder of XT chunks for processors with VBMI and GFNI: the older bytes go through one bit-matrix
// product, the hash through a table of 256 bytes in four registers.
#pragma once

#include "cpu_kernels/avx512/xt_register_inl.h"
#include "cpu_kernels/ops/unroll.h"
#include "cpu_kernels/ops/xt_tables_inl.h"
#include "pack/format/xt_layout.h"

#undef HEARTH_ISA_KERNEL
#undef HEARTH_ISA_INLINE
#define HEARTH_ISA_KERNEL HEARTH_AVX512VBMI
#define HEARTH_ISA_INLINE HEARTH_AVX512VBMI_INLINE

namespace hearth::avx512 {
namespace {

// The low `count` bits of each byte of `now`, the others of `before`.
HEARTH_AVX512VBMI_INLINE __m512i XtSelect(uint32_t count, __m512i now, __m512i before) {
  const __m512i low = _mm512_set1_epi8(static_cast<char>((1u << count) - 1));
  return _mm512_ternarylogic_epi64(low, now, before, 0xCA);
}

HEARTH_AVX512VBMI_INLINE __m512i XtMatrixOf(uint64_t matrix) {
  return _mm512_set1_epi64(static_cast<int64_t>(matrix));
}

// The byte of each hash in a table of 256.
HEARTH_AVX512VBMI_INLINE __m512i XtLookUp(const __m512i (&table)[4], __m512i hash) {
  const __mmask64 is_high = _mm512_movepi8_mask(hash);
  // Bytes outside a mask stay what the index was: a hash for the second lookup, then its result.
  const __m512i low = _mm512_mask2_permutex2var_epi8(table[0], hash, ~is_high, table[1]);
  return _mm512_mask2_permutex2var_epi8(table[2], low, is_high, table[3]);
}

template <uint32_t kBits>
struct XtDecoder {
  static constexpr int kLines = kBits == 4 ? 4 : 2;   // of fields in a chunk
  static constexpr int kFields = kBits == 4 ? 2 : 4;  // in a byte
  static constexpr bool kUsesOldest = XtCodeOfBits(kBits).uses_oldest();

  __m512i table[2][4];       // by role of the high nibble
  __m512i fields;            // the last line of fields
  __m512i high_bits;         // 3 bits: the last line of them
  __m512i recent[kFields];   // Recent() of that line at each place in the byte
  __m512i recent2[kFields];  // the same of the line before

  // Reads the two chunks before the first one.
  HEARTH_AVX512VBMI_INLINE void Start(const uint8_t* before, const uint8_t* before2,
                                      XtDecoder* state) {
    HEARTH_UNROLL
    for (int i = 0; i < 8; ++i) {
      state->table[i / 4][i % 4] =
          _mm512_load_si512(kXtTables<kBits>.byte_of_hash[i / 4].data() + i % 4 * 64);
    }
    const __m512i b1 = _mm512_loadu_si512(before + (kLines - 1) * 64);
    const __m512i b2 = _mm512_loadu_si512(before + (kLines - 2) * 64);
    const __m512i b3 = _mm512_loadu_si512(kLines == 4 ? before + 64 : before2 + 64);
    state->fields = b1;
    state->high_bits = b1;
    if constexpr (kBits == 3) state->high_bits = _mm512_loadu_si512(before + 128);
    HEARTH_UNROLL
    for (int p = 0; p < kFields; ++p) {
      state->recent[p] = XtSelect((p + 1) * (8 / kFields), b1, b2);
      state->recent2[p] = XtSelect((p + 1) * (8 / kFields), b2, b3);
    }
  }

  HEARTH_AVX512VBMI_INLINE void Decode(const uint8_t* chunk, XtDecoder* state,
                                       XtBytes (&w)[kXtStepsPerChunk]) {
    __m512i high_bits = state->high_bits;
    if constexpr (kBits == 3) high_bits = _mm512_loadu_si512(chunk + 128);
    HEARTH_UNROLL
    for (int line = 0; line < kLines; ++line) {
      const __m512i fields = _mm512_loadu_si512(chunk + line * 64);
      HEARTH_UNROLL
      for (int p = 0; p < kFields; ++p) {
        const int step = line * kFields + p;
        const int phase = step % static_cast<int>(XtCodeOfBits(kBits).phase_count);
        const __m512i older_map = XtMatrixOf(kXtTables<kBits>.older_affine[phase]);
        const __m512i oldest_map = XtMatrixOf(kXtTables<kBits>.oldest_affine[phase]);
        const __m512i recent =
            p + 1 == kFields ? fields : XtSelect((p + 1) * (8 / kFields), fields, state->fields);
        __m512i older = state->recent[p];
        __m512i oldest = state->recent2[p];
        if constexpr (kBits == 3) {
          oldest = older;
          older = step == 7 ? high_bits : XtSelect(step + 1, high_bits, state->high_bits);
        }
        const __m512i image = _mm512_gf2p8affine_epi64_epi8(older, older_map, 0);
        __m512i hash = _mm512_xor_si512(recent, image);
        if constexpr (kUsesOldest) {
          const XtMatrix& map = XtCodeOfBits(kBits).oldest[phase];
          // A permute ignores the high two bits, and leaves the affine unit to others: at 4 bits.
          const bool is_low = kBits == 4 && map[6] == 0 && map[7] == 0;
          const __m512i image2 =
              is_low ? _mm512_permutexvar_epi8(
                           oldest, _mm512_load_si512(kXtTables<kBits>.oldest_of_low[phase].data()))
                     : _mm512_gf2p8affine_epi64_epi8(oldest, oldest_map, 0);
          hash = _mm512_ternarylogic_epi64(recent, image, image2, 0x96);  // the sum of all three
        }
        state->recent2[p] = state->recent[p];
        state->recent[p] = recent;
        w[step] = XtLookUp(state->table[p >= kFields / 2 ? 1 : 0], hash);
      }
      state->fields = fields;
    }
    state->high_bits = high_bits;
  }
};

}  // namespace
}  // namespace hearth::avx512
