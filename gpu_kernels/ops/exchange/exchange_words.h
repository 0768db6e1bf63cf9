// How a list of experts and its parts are written in words (exchange_layout.h): a header, two words
// for each item, then one for each entry. Payloads, lowest bits first:
//   header  items 10, entries 10, flags 12
//   item    address / 64, its lower 32 bits
//           address / 64, its upper 19 bits; entry_count - 1 in 4; entry_begin in 9
//   entry   x_row 16, y_row 16
//   error   layer 16, ExchangeStage 8
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/exchange/exchange_layout.h"
#include "gpu_kernels/ops/expert_ffn.h"

#ifdef __CUDACC__
#define HEARTH_BOTH_SIDES __host__ __device__
#else
#define HEARTH_BOTH_SIDES
#endif

namespace hearth {

inline constexpr uint32_t kItemRowsMax = 16;  // entries of one item
inline constexpr uint32_t kItemAddressBits = 57;

// Flags of a list's header.
inline constexpr uint32_t kListAborted = 1;        // the host gave the window up: take nothing more
inline constexpr uint32_t kListLateFollows = 2;    // of hits: a second list will come
inline constexpr uint32_t kListOutputsFollow = 4;  // of hits: outputs will come from the host

struct ListHeader {
  uint32_t item_count = 0;
  uint32_t entry_count = 0;
  uint32_t flags = 0;
};

HEARTH_BOTH_SIDES constexpr uint64_t TaggedWord(uint32_t tag, uint32_t payload) {
  return uint64_t{tag} << 32 | payload;
}
HEARTH_BOTH_SIDES constexpr uint32_t TagOf(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}
HEARTH_BOTH_SIDES constexpr uint32_t PayloadOf(uint64_t word) {
  return static_cast<uint32_t>(word);
}

HEARTH_BOTH_SIDES constexpr uint32_t PackHeader(const ListHeader& header) {
  return header.item_count | header.entry_count << 10 | header.flags << 20;
}
HEARTH_BOTH_SIDES constexpr ListHeader UnpackHeader(uint32_t payload) {
  return {payload & 0x3FFu, payload >> 10 & 0x3FFu, payload >> 20};
}

// `address` is a multiple of 64 below 2^57.
HEARTH_BOTH_SIDES constexpr uint32_t PackItemLow(uint64_t address) {
  return static_cast<uint32_t>(address >> 6);
}
HEARTH_BOTH_SIDES constexpr uint32_t PackItemHigh(uint64_t address, uint32_t entry_begin,
                                                  uint32_t entry_count) {
  return static_cast<uint32_t>(address >> 38) | (entry_count - 1) << 19 | entry_begin << 23;
}
HEARTH_BOTH_SIDES constexpr uint64_t ItemAddress(uint32_t low, uint32_t high) {
  return uint64_t{high & 0x7FFFFu} << 38 | uint64_t{low} << 6;
}
HEARTH_BOTH_SIDES constexpr uint32_t ItemEntryCount(uint32_t high) {
  return (high >> 19 & 0xFu) + 1;
}
HEARTH_BOTH_SIDES constexpr uint32_t ItemEntryBegin(uint32_t high) { return high >> 23; }

HEARTH_BOTH_SIDES constexpr uint32_t PackEntry(const ExpertFfnEntry& entry) {
  return entry.x_row | entry.y_row << 16;
}
HEARTH_BOTH_SIDES constexpr ExpertFfnEntry UnpackEntry(uint32_t payload) {
  return {payload & 0xFFFFu, payload >> 16};
}

HEARTH_BOTH_SIDES constexpr uint32_t PackError(uint32_t layer, ExchangeStage stage) {
  return layer | static_cast<uint32_t>(stage) << 16;
}

}  // namespace hearth
