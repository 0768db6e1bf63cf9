// Lookup tables by which a GPU decodes XT (pack/format/xt_code.h), in a form that one lookup of a
// byte serves eight weights.
//
// A hash is linear over GF(2) in the bytes of its stream. So what one byte of a stream adds to the
// hashes of the steps around it is one entry of a table with 256 entries, and hashes are exclusive
// ors of entries. Hashes of four steps of a band form a word; words 0 and 1 belong to a band, 2 and
// 3 are those of the next one:
//   kHashBytes     byte n: the hash of the word's n-th step
//   kSplitNibbles  nibble n: `a` of the n-th step's hash, nibble 4 + n: its `b` (Level() of XtCode)
// The n-th step of word w is step 4w + kXtStepOrder(bits)[n]; then the newest field lies in the low
// nibble for n = 0 and 2 and in the high one for n = 1 and 3, at every number of bits.
// What a byte adds to its own line's steps is the byte itself under a mask; kernels do that without
// a table, and tables leave it out.
//
// In shared memory a slot is 128 bytes of each entry, its words repeated for as many lanes as fit:
// lane l reads the words of its own banks. Entry v of slot k lies at (k / 2) * 64 KiB + v * 256 +
// (k % 2) * 128, so that one byte permutation makes an address.
//   2 bits  slot 0: line 0, slot 1: line 1: to the next word and the one after it
//   3 bits  slot 0: line 2 (high bits) to words 0 to 3; slot 1: line 0 to word 1; slot 2: line 1 to
//           word 2. Without level tables slot 1 has both of the latter.
//   4 bits  slot 0: line 0, slot 1: line 2: to their own word and the next; slot 2: line 1 to word
//           1 and line 3 to word 2
//   slot 3  levels + kXtLevelOffset of a kHashBytes hash: byte 0 where the newest field is low,
//           byte 1 where it is high
// Without level tables both words are kSplitNibbles and line l may use the slot of line l - 1 or
// l - 2 that has the same phases: 2 bits: slot 0 for both; 4 bits: slot 0 for the lines 0 and 2,
// slot 1 for word 1 from line 1 and word 2 from line 3, which are then the same.
#pragma once

#include <array>
#include <cstdint>

namespace hearth {

enum class XtWordForm : uint8_t { kHashBytes, kSplitNibbles };

// How the two words of a band are turned into levels.
enum class XtDecodeKind : uint8_t {
  kSplit,       // both kSplitNibbles: 64 KiB of tables
  kHalfLevels,  // word 0 kHashBytes, word 1 kSplitNibbles: 128 KiB
  kLevels       // both kHashBytes: 128 KiB
};

inline constexpr uint32_t kXtSlotCount = 4;
inline constexpr uint32_t kXtSlotRowBytes = 128;
inline constexpr uint32_t kXtRegionBytes = 64u << 10;  // two slots of 256 entries
inline constexpr uint32_t kXtLevelSlot = 3;
constexpr uint32_t XtTableBytes(XtDecodeKind kind) {
  return kind == XtDecodeKind::kSplit ? kXtRegionBytes : 2 * kXtRegionBytes;
}
// Of a block: tables that have a level slot start on 64 KiB.
constexpr uint32_t XtSharedBytes(XtDecodeKind kind) {
  return XtTableBytes(kind) + (kind == XtDecodeKind::kSplit ? 0 : kXtRegionBytes);
}
constexpr XtWordForm XtFormOf(XtDecodeKind kind, uint32_t word) {
  return kind == XtDecodeKind::kLevels || (kind == XtDecodeKind::kHalfLevels && word % 2 == 0)
             ? XtWordForm::kHashBytes
             : XtWordForm::kSplitNibbles;
}

constexpr std::array<uint8_t, 4> XtStepOrder(uint32_t bits) {
  return bits == 4 ? std::array<uint8_t, 4>{0, 1, 2, 3} : std::array<uint8_t, 4>{0, 2, 1, 3};
}

// Passed to kernels by value.
struct XtDecodeTables {
  // Images of the eight bits of a byte; `words` of them count: 1, 2 or 4, zero: no such slot.
  struct Slot {
    uint32_t words = 0;
    uint32_t column[8][4] = {};
  };
  Slot slots[3];
  // Three tables of sixteen bytes, entry 0 lowest, each at least zero; the sum of their entries for
  // a, b and a ^ b is level + kXtLevelOffset.
  uint32_t split[3][4] = {};
};

// `bits` is 2, 3 or 4.
XtDecodeTables MakeXtDecodeTables(uint32_t bits, XtDecodeKind kind);

}  // namespace hearth
