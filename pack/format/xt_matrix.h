// The plain definitions of what an XT matrix means: its levels, and the rotated space in which it
// stands. Code, layout and rotation are described in pack/format/xt_code.h and xt_layout.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pack/format/xt_layout.h"

namespace hearth {

// [step][lane]: the level of (row lane / 4 of the band, column 4 * step + lane % 4 of the block).
using XtLevels = std::array<std::array<int8_t, kXtLaneCount>, kXtStepsPerChunk>;

// Of the chunk (block, band) of the matrix that starts at `codes`.
void DecodeXtChunk(const XtShape& shape, const std::byte* codes, uint32_t block, uint32_t band,
                   XtLevels* levels);

// One row of activations or weights into the rotated space, and back; canonical arithmetic. The
// way back runs the same butterflies, then the factor, then the signs.
void RotateXt(std::span<float> row);
void UnrotateXt(std::span<float> row);
// The same for one block of a row, of RotationBlock(cols) values from column `first_col` on.
void UnrotateXtBlock(uint32_t first_col, std::span<float> block);

}  // namespace hearth
