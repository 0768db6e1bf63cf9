// How one XT matrix (rows x cols of an expert's projection) lies in a blob.
//
//   codes   [group][block][band][line][lane] u8
//   scales  [16 * bands] fp16, one per row, zero for padding rows; starts on 64 bytes
//
// band   16 rows; bands are split into the fewest groups of at most 40, as even as they go
// block  32 columns
// chunk  (group, block, band): 512 weights, 64 * bits bytes, in `bits` lines of 64 bytes
// lane   byte 4r + j of a line belongs to row 16 * band + r and the columns 32 * block + 4i + j,
//        i = 0..7: so the dword r of a decoded line is four weights of one row that stand beside
//        each other
// A stream (group, block, lane) runs over i, then over the bands of its group, and is circular:
// symbol t = 8 * band + i. Lines of a chunk (pack/format/xt_code.h has B and R):
//   4 bits  4 lines: B of the steps 2l, 2l + 1
//   2 bits  2 lines: B of the steps 4l..4l + 3
//   3 bits  3 lines: B of the steps 0-3, B of the steps 4-7, R
// weight = level * row scale * multiplier of the projection; rotated: see RotationBlock().
#pragma once

#include <cstdint>

#include "pack/format/matrix_layout.h"

namespace hearth {

inline constexpr uint32_t kXtBlockCols = 32;
inline constexpr uint32_t kXtLaneCount = 64;
inline constexpr uint32_t kXtStepsPerChunk = 8;
inline constexpr uint32_t kXtGroupBandsMax = 40;

struct XtShape {
  uint32_t rows = 0;
  uint32_t cols = 0;  // a multiple of 32
  uint32_t bits = 0;  // 2, 3 or 4

  uint32_t band_count() const { return static_cast<uint32_t>(BandCount(rows)); }
  uint32_t block_count() const { return cols / kXtBlockCols; }
  uint32_t group_count() const { return (band_count() + kXtGroupBandsMax - 1) / kXtGroupBandsMax; }
  // First band of a group; group_begin(group_count()) is band_count().
  uint32_t group_begin(uint32_t group) const {
    return static_cast<uint32_t>(uint64_t{band_count()} * group / group_count());
  }
  uint32_t group_of(uint32_t band) const;
  uint64_t chunk_bytes() const { return uint64_t{kXtLaneCount} * bits; }
  // Of the chunk (block, band), from the start of the matrix.
  uint64_t chunk_offset_bytes(uint32_t block, uint32_t band) const;
  uint64_t code_bytes() const { return chunk_bytes() * band_count() * block_count(); }
  uint64_t scale_offset_bytes() const { return code_bytes(); }  // a multiple of 64
  uint64_t bytes() const { return AlignUp(code_bytes() + uint64_t{band_count()} * 32, 64); }

  bool operator==(const XtShape&) const = default;
};

// XT weights stand in a rotated space, and activations are rotated into it before they are
// quantised: x' = H(s * x) / sqrt(block) in blocks of RotationBlock(cols) values, where s is the
// fixed sequence of signs RotationSign() and H the Walsh-Hadamard transform in natural order. H s
// is orthogonal, so w . x = w' . x'.
//   Canonical arithmetic: y = s * x; for span = 1, 2, 4, ... < block: every pair (a, b) that stands
//   `span` apart within 2 * span becomes (a + b, a - b), in fp32; then y * (1 / sqrt(block)), the
//   factor rounded to fp32.
inline constexpr uint32_t kRotationBlockMax = 128;
uint32_t RotationBlock(uint32_t cols);  // the largest power of two that divides cols, at most 128
float RotationSign(uint32_t col);       // +1 or -1
float RotationFactor(uint32_t block);   // 1 / sqrt(block)
// The sign bits of 32 columns from `first` (a multiple of 32): bit i set means -1.
uint32_t RotationSignBits(uint32_t first);

}  // namespace hearth
