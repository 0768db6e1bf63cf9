// Decoding XT on a GPU: one lane holds, of one chunk (pack/format/xt_layout.h), one row: a dword of
// each line, which are four streams of eight weights. Tables: xt_decode_tables.h.
#pragma once

#include <cstdint>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/ops/xt/xt_decode_tables.h"
#include "pack/format/xt_layout.h"

namespace hearth {

// Shared addresses of lane l's banks in slots of 1, 2 and 4 words of entry 0. Tables that start on
// 64 KiB need no addition for the rest of an address: XtAddress.
struct XtLaneAddresses {
  uint32_t of1;
  uint32_t of2;
  uint32_t of4;
  uint32_t base;  // of the tables

  // After the barrier behind XtFillTables.
  __device__ XtLaneAddresses(uint32_t tables, uint32_t lane)
      : of1(lane * 4), of2(lane % 16 * 8), of4(lane % 8 * 16), base(tables) {
    const uint32_t high = tables >> 16 << 8;
    of1 |= high;
    of2 |= high;
    of4 |= high;
    // Loads of tables depend on these, so none moves before the barrier.
    asm volatile("" : "+r"(of1), "+r"(of2), "+r"(of4), "+r"(base));
  }
};

// Of entry "byte `which` of `bytes`" of a slot.
template <bool kAligned>
__device__ inline uint32_t XtAddress(uint32_t bytes, uint32_t which, uint32_t lane_address,
                                     uint32_t base) {
  if constexpr (kAligned) return PermuteBytes(bytes, lane_address, 0x6504u | which << 4);
  return PermuteBytes(bytes, lane_address, 0x6604u | which << 4) + base;
}

template <uint32_t kSlot>
inline constexpr uint32_t kXtSlotBytes = kSlot / 2 * kXtRegionBytes + kSlot % 2 * kXtSlotRowBytes;

// Of the tables, at a shared address.
template <uint32_t kOffset>
__device__ inline uint32_t XtLoad1(uint32_t address) {
  uint32_t value;
  asm("ld.shared.u32 %0, [%1 + %2];" : "=r"(value) : "r"(address), "n"(kOffset));
  return value;
}
template <uint32_t kOffset>
__device__ inline uint2 XtLoad2(uint32_t address) {
  uint2 value;
  asm("ld.shared.v2.u32 {%0, %1}, [%2 + %3];"
      : "=r"(value.x), "=r"(value.y)
      : "r"(address), "n"(kOffset));
  return value;
}
template <uint32_t kOffset>
__device__ inline uint4 XtLoad4(uint32_t address) {
  uint4 value;
  asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "r"(address), "n"(kOffset));
  return value;
}
template <uint32_t kOffset>
__device__ inline uint32_t XtLoadByte(uint32_t address) {
  uint32_t value;
  asm("ld.shared.u8 %0, [%1 + %2];" : "=r"(value) : "r"(address), "n"(kOffset));
  return value;
}
template <XtDecodeKind kKind, uint32_t kWord>
inline constexpr bool kXtIsSplit = XtFormOf(kKind, kWord) == XtWordForm::kSplitNibbles;
// Of a line's own bytes in their words: for 2 and 3 bits in step order 0, 2, 1, 3.
template <uint32_t kBits, bool kSplit>
inline constexpr uint32_t kXtOwnMask = kBits == 4 ? (kSplit ? 0xF0F0FFFFu : 0xFF0FFF0Fu)
                                                  : (kSplit ? 0xF0F0FF33u : 0xFF0F3F03u);

// What the bytes of four streams in the band before add to the words of this one.
template <uint32_t kBits>
struct XtCarry {
  static constexpr int kParts = kBits == 4 ? 2 : 3;
  uint32_t part[4][kParts];
};

template <uint32_t kBits, XtDecodeKind kKind>
struct XtHash {
  static constexpr bool kSplit0 = kXtIsSplit<kKind, 0>;
  static constexpr bool kSplit1 = kXtIsSplit<kKind, 1>;

  static constexpr bool kAligned = kKind != XtDecodeKind::kSplit;

  __device__ static uint32_t Address(const XtLaneAddresses& lane, uint32_t bytes, uint32_t which,
                                     uint32_t lane_address) {
    return XtAddress<kAligned>(bytes, which, lane_address, lane.base);
  }

  // Own bytes of stream j before the mask. 2 and 3 bits: of one line; 4 bits: of two.
  template <bool kSplit>
  __device__ static uint32_t Own(uint32_t line, uint32_t shifted, uint32_t j) {
    return kSplit ? PermuteBytes(line, shifted, 0x4400u + 0x1111u * j)
                  : PermuteBytes(line, line, 0x1111u * j);
  }

  // The words of a band's four streams; `carry` goes on to the next band.
  __device__ static void Words(const XtLaneAddresses& lane, const uint32_t (&line)[kBits],
                               XtCarry<kBits>* carry, uint32_t (&word0)[4], uint32_t (&word1)[4]) {
    if constexpr (kBits == 4) {
      Words4(lane, line, carry, word0, word1);
    } else {
      const uint32_t shifted0 = kSplit0 ? line[0] << 4 : 0;
      const uint32_t shifted1 = kSplit1 ? line[1] << 4 : 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t own0 = Own<kSplit0>(line[0], shifted0, j) & kXtOwnMask<kBits, kSplit0>;
        const uint32_t own1 = Own<kSplit1>(line[1], shifted1, j) & kXtOwnMask<kBits, kSplit1>;
        uint32_t(&part)[3] = carry->part[j];
        if constexpr (kBits == 3) {
          const auto high = XtLoad4<kXtSlotBytes<0>>(Address(lane, line[2], j, lane.of4));
          const uint2 low = LowBits(lane, line, j);
          word0[j] = (own0 ^ high.x) ^ part[0] ^ part[1];
          word1[j] = (own1 ^ high.y) ^ low.x ^ part[2];
          part[0] = high.z;
          part[1] = low.y;
          part[2] = high.w;
        } else {
          const auto b0 = XtLoad2<kXtSlotBytes<0>>(Address(lane, line[0], j, lane.of2));
          const auto b1 = XtLoad2<kXtSlotBytes<1>>(Address(lane, line[1], j, lane.of2));
          word0[j] = (own0 ^ part[0]) ^ part[1];
          word1[j] = (own1 ^ b0.x) ^ part[2];
          part[0] = b0.y;
          part[1] = b1.x;
          part[2] = b1.y;
        }
      }
    }
  }

  // 3 bits: what line 0 adds to word 1 and line 1 to the next band's word 0.
  __device__ static uint2 LowBits(const XtLaneAddresses& lane, const uint32_t (&line)[kBits],
                                  uint32_t j) {
    if constexpr (kKind == XtDecodeKind::kSplit) {
      return {XtLoad1<kXtSlotBytes<1>>(Address(lane, line[0], j, lane.of2)),
              XtLoad1<kXtSlotBytes<1> + 4>(Address(lane, line[1], j, lane.of2))};
    } else {
      return {XtLoad1<kXtSlotBytes<1>>(Address(lane, line[0], j, lane.of1)),
              XtLoad1<kXtSlotBytes<2>>(Address(lane, line[1], j, lane.of1))};
    }
  }

  // Lines a and b of 4 bits, own bytes of streams 2 * half and 2 * half + 1: bytes a, b, a, b.
  template <bool kSplit>
  __device__ static void Own4(uint32_t a, uint32_t b, uint32_t (&own)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kSplit) {
        const uint32_t pair = PermuteBytes(a, b, half == 0 ? 0x5140u : 0x7362u);
        const uint32_t shifted = pair << 4;
        own[2 * half] = PermuteBytes(pair, shifted, 0x5410u) & kXtOwnMask<kBits, true>;
        own[2 * half + 1] = PermuteBytes(pair, shifted, 0x7632u) & kXtOwnMask<kBits, true>;
      } else {
        own[2 * half] =
            PermuteBytes(a, b, 0x4400u + 0x1111u * (2 * half)) & kXtOwnMask<kBits, false>;
        own[2 * half + 1] =
            PermuteBytes(a, b, 0x4400u + 0x1111u * (2 * half + 1)) & kXtOwnMask<kBits, false>;
      }
    }
  }

  __device__ static void Words4(const XtLaneAddresses& lane, const uint32_t (&line)[kBits],
                                XtCarry<kBits>* carry, uint32_t (&word0)[4], uint32_t (&word1)[4]) {
    constexpr bool kShared = kKind == XtDecodeKind::kSplit;
    uint32_t own0[4];
    uint32_t own1[4];
    Own4<kSplit0>(line[0], line[1], own0);
    Own4<kSplit1>(line[2], line[3], own1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto b0 = XtLoad2<kXtSlotBytes<0>>(Address(lane, line[0], j, lane.of2));
      const auto b2 = XtLoad2<kXtSlotBytes<kShared ? 0 : 1>>(Address(lane, line[2], j, lane.of2));
      const uint32_t odd_address = kShared ? lane.of1 : lane.of2;
      constexpr uint32_t kOddSlot = kXtSlotBytes < kShared ? 1 : 2 > ;
      const auto b1 = XtLoad1<kOddSlot>(Address(lane, line[1], j, odd_address));
      const auto b3 = XtLoad1<kOddSlot + (kShared ? 0 : 4)>(Address(lane, line[3], j, odd_address));
      uint32_t(&part)[2] = carry->part[j];
      word0[j] = (own0[j] ^ b0.x) ^ part[0] ^ part[1];
      word1[j] = (own1[j] ^ b0.y) ^ b1 ^ b2.x;
      part[0] = b2.y;
      part[1] = b3;
    }
  }
};

// The level tables of a lane in registers (XtDecodeTables::split).
struct XtSplitTables {
  uint32_t word[3][4];
};

// Bytes whose sum is level + kXtLevelOffset of the word's four steps.
struct XtSplitLevels {
  uint32_t part[6];
  __device__ uint32_t Sum() const {
    return part[0] + part[1] + part[2] + part[3] + part[4] + part[5];  // no byte overflows
  }
};

// Entries are below 128, so the sign that a permutation takes where a selector's top bit is set is
// zero: of each pair of lookups one has the entry, the other zero.
__device__ inline XtSplitLevels XtLookUpSplit(const XtSplitTables& tables, uint32_t word) {
  const uint32_t b = word >> 16;
  const uint32_t index[3] = {word, b, word ^ b};
  XtSplitLevels levels;
#pragma unroll
  for (int t = 0; t < 3; ++t) {
    levels.part[2 * t] = PermuteBytes(tables.word[t][0], tables.word[t][1], index[t]);
    levels.part[2 * t + 1] = PermuteBytes(tables.word[t][2], tables.word[t][3], index[t] ^ 0x8888u);
  }
  return levels;
}

// level + kXtLevelOffset of step n of a word of hashes.
template <int kStep>
__device__ inline uint32_t XtLookUpLevel(const XtLaneAddresses& lane, uint32_t word) {
  return XtLoadByte<kXtSlotBytes<kXtLevelSlot> + kStep % 2>(
      XtAddress<true>(word, kStep, lane.of1, lane.base));
}

// Sixteen entries of a slot, those of bytes high * 16 to high * 16 + 15, by one warp.
__device__ inline void XtFillEntries(const XtDecodeTables::Slot& of, uint32_t high, uint8_t* slot) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t word = lane % of.words;
  uint32_t column[8];
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) {
    const uint32_t even = word % 2 == 0 ? of.column[bit][0] : of.column[bit][1];
    const uint32_t odd = word % 2 == 0 ? of.column[bit][2] : of.column[bit][3];
    column[bit] = word < 2 ? even : odd;
  }
  uint32_t base = 0;
#pragma unroll
  for (int bit = 0; bit < 4; ++bit) base ^= (high >> bit & 1) != 0 ? column[4 + bit] : 0;
  uint8_t* to = slot + high * 16 * 256 + lane * 4;
#pragma unroll
  for (uint32_t low = 0; low < 16; ++low) {
    uint32_t entry = base;
#pragma unroll
    for (int bit = 0; bit < 4; ++bit) entry ^= (low >> bit & 1) != 0 ? column[bit] : 0;
    *reinterpret_cast<uint32_t*>(to + low * 256) = entry;
  }
}

// Entry `nibble` of table t.
__device__ inline uint32_t XtSplitEntry(const XtDecodeTables& from, int t, uint32_t nibble) {
  const uint32_t(&words)[4] = from.split[t];
  const uint32_t first = nibble < 8 ? words[0] : words[2];
  const uint32_t second = nibble < 8 ? words[1] : words[3];
  return PermuteBytes(first, second, nibble & 7u) & 0xFFu;
}

// The same of the level slot: lanes 0 to 15 make an entry each.
__device__ inline void XtFillLevels(const XtDecodeTables& from, uint32_t high, uint8_t* slot) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t own_low = lane % 16;
  const uint32_t both = XtSplitEntry(from, 2, own_low ^ high);
  const uint32_t newest_low = XtSplitEntry(from, 0, own_low) + XtSplitEntry(from, 1, high) + both;
  const uint32_t newest_high = XtSplitEntry(from, 0, high) + XtSplitEntry(from, 1, own_low) + both;
  const uint32_t own = newest_low | newest_high << 8;
  uint8_t* to = slot + high * 16 * 256 + lane * 4;
#pragma unroll
  for (int low = 0; low < 16; ++low) {
    *reinterpret_cast<uint32_t*>(to + low * 256) = __shfl_sync(0xFFFFFFFFu, own, low);
  }
}

// All slots in shared memory, by all warps of the block.
__device__ inline void XtFillTables(const XtDecodeTables& from, bool has_levels, uint8_t* tables) {
  for (uint32_t unit = threadIdx.x / 32; unit < kXtSlotCount * 16; unit += blockDim.x / 32) {
    const uint32_t slot = unit / 16;
    uint8_t* to = tables + slot / 2 * kXtRegionBytes + slot % 2 * kXtSlotRowBytes;
    if (slot == kXtLevelSlot) {
      if (has_levels) XtFillLevels(from, unit % 16, to);
    } else if (from.slots[slot].words != 0) {
      XtFillEntries(from.slots[slot], unit % 16, to);
    }
  }
}

}  // namespace hearth
