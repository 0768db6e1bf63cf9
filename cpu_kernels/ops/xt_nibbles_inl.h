// Shared body: decoder of XT chunks by tables of sixteen bytes, for processors with byte shuffles
// but no bit-matrix products. All bytes live as two registers, one for each nibble, so that the
// maps and the tables need no further splits. Compiled once by each instruction set, after its
// xt_register_inl.h, which has the operations on XtBytes:
//   XtLine, XtTable, XtNibble (of a byte), XtShuffle, XtXor, XtXor3, XtAddBytes, XtMerge (the bits
//   of a mask from `now`, the others from `before`)
#pragma once

#include "cpu_kernels/ops/unroll.h"
#include "cpu_kernels/ops/xt_tables_inl.h"
#include "pack/format/xt_layout.h"

namespace hearth::HEARTH_ISA {
namespace {

// The low and the high nibble of 32 or 64 bytes, each in the low half of its byte.
struct XtHalves {
  XtBytes low;
  XtBytes high;
};

HEARTH_ISA_INLINE XtHalves XtSplit(XtBytes bytes) {
  return {XtNibble(bytes, 0), XtNibble(bytes, 1)};
}

// The low kCount bits of each byte of `now`, the others of `before`; 1 to 8.
template <uint32_t kCount>
HEARTH_ISA_INLINE XtHalves XtSelect(const XtHalves& now, const XtHalves& before) {
  if constexpr (kCount == 8) return now;
  if constexpr (kCount == 4) return {now.low, before.high};
  if constexpr (kCount < 4) return {XtMerge((1u << kCount) - 1, now.low, before.low), before.high};
  return {now.low, XtMerge((1u << (kCount & 3)) - 1, now.high, before.high)};
}

// Whether a table has anything but zeros.
constexpr bool XtMaps(const std::array<uint8_t, 16>& table) {
  for (const uint8_t byte : table) {
    if (byte != 0) return true;
  }
  return false;
}

template <uint32_t kBits>
struct XtDecoder {
  static constexpr int kLines = kBits == 4 ? 4 : 2;   // of fields in a chunk
  static constexpr int kFields = kBits == 4 ? 2 : 4;  // in a byte
  static constexpr uint32_t kFieldBits = 8 / kFields;

  XtBytes level[3];
  XtHalves fields;            // the last line of fields
  XtHalves high_bits;         // 3 bits: the last line of them
  XtHalves recent[kFields];   // Recent() of that line at each place in the byte
  XtHalves recent2[kFields];  // the same of the line before

  template <int P>
  HEARTH_ISA_INLINE void StartPlace(const XtHalves (&b)[3], XtDecoder* state) {
    state->recent[P] = XtSelect<(P + 1) * kFieldBits>(b[0], b[1]);
    state->recent2[P] = XtSelect<(P + 1) * kFieldBits>(b[1], b[2]);
    if constexpr (P + 1 < kFields) StartPlace<P + 1>(b, state);
  }

  // Reads the two chunks before the first one.
  HEARTH_ISA_INLINE void Start(const uint8_t* before, const uint8_t* before2, XtDecoder* state) {
    for (int t = 0; t < 3; ++t) {
      state->level[t] = XtTable(kXtTables<kBits>.byte_of_nibbles[t].data());
    }
    const XtHalves b[3] = {XtSplit(XtLine(before + (kLines - 1) * 64)),
                           XtSplit(XtLine(before + (kLines - 2) * 64)),
                           XtSplit(XtLine(kLines == 4 ? before + 64 : before2 + 64))};
    state->fields = b[0];
    state->high_bits = b[0];
    if constexpr (kBits == 3) state->high_bits = XtSplit(XtLine(before + 128));
    StartPlace<0>(b, state);
  }

  // image ^ the image of a byte under a map, given by its tables for the two nibbles.
  template <bool kUseLow, bool kUseHigh>
  HEARTH_ISA_INLINE XtBytes Map(const std::array<std::array<uint8_t, 16>, 2>& map,
                                const XtHalves& of, XtBytes image) {
    if constexpr (kUseLow) image = XtXor(image, XtShuffle(XtTable(map[0].data()), of.low));
    if constexpr (kUseHigh) image = XtXor(image, XtShuffle(XtTable(map[1].data()), of.high));
    return image;
  }

  // Step kStep of a chunk whose line of fields and line of high bits are given.
  template <int kStep>
  HEARTH_ISA_INLINE XtBytes Step(const XtHalves& fields, const XtHalves& high_bits,
                                 XtDecoder* state) {
    constexpr int p = kStep % kFields;
    constexpr uint32_t phase = kStep % XtCodeOfBits(kBits).phase_count;
    const XtHalves recent = XtSelect<(p + 1) * kFieldBits>(fields, state->fields);
    XtHalves older = state->recent[p];
    XtHalves oldest = state->recent2[p];
    if constexpr (kBits == 3) {
      oldest = older;
      older = XtSelect<kStep + 1>(high_bits, state->high_bits);
    }
    constexpr const auto& kOlder = kXtTables<kBits>.older_of_nibble[phase];
    constexpr const auto& kOldest = kXtTables<kBits>.oldest_of_nibble[phase];
    XtBytes image = XtShuffle(XtTable(kOlder[0].data()), older.low);
    image = Map<false, true>(kOlder, older, image);
    image = Map<XtMaps(kOldest[0]), XtMaps(kOldest[1])>(kOldest, oldest, image);
    state->recent2[p] = state->recent[p];
    state->recent[p] = recent;
    const XtBytes low = XtXor(XtNibble(image, 0), recent.low);
    const XtBytes high = XtXor(XtNibble(image, 1), recent.high);
    const XtBytes a = XtShuffle(state->level[0], p >= kFields / 2 ? high : low);
    const XtBytes b = XtShuffle(state->level[1], p >= kFields / 2 ? low : high);
    return XtAddBytes(XtAddBytes(a, b), XtShuffle(state->level[2], XtXor(low, high)));
  }

  template <int kStep>
  HEARTH_ISA_INLINE void Steps(const XtHalves& fields, const XtHalves& high_bits, XtDecoder* state,
                               XtBytes (&w)[kXtStepsPerChunk]) {
    w[kStep] = Step<kStep>(fields, high_bits, state);
    if constexpr ((kStep + 1) % kFields != 0) Steps<kStep + 1>(fields, high_bits, state, w);
  }

  template <int kLine>
  HEARTH_ISA_INLINE void Lines(const uint8_t* chunk, const XtHalves& high_bits, XtDecoder* state,
                               XtBytes (&w)[kXtStepsPerChunk]) {
    const XtHalves fields = XtSplit(XtLine(chunk + kLine * 64));
    Steps<kLine * kFields>(fields, high_bits, state, w);
    state->fields = fields;
    if constexpr (kLine + 1 < kLines) Lines<kLine + 1>(chunk, high_bits, state, w);
  }

  HEARTH_ISA_INLINE void Decode(const uint8_t* chunk, XtDecoder* state,
                                XtBytes (&w)[kXtStepsPerChunk]) {
    XtHalves high_bits = state->high_bits;
    if constexpr (kBits == 3) high_bits = XtSplit(XtLine(chunk + 128));
    Lines<0>(chunk, high_bits, state, w);
    state->high_bits = high_bits;
  }
};

}  // namespace
}  // namespace hearth::HEARTH_ISA
