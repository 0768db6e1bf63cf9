// What one tile of an expert product reads: B bands of weights against R activation rows. Shared by
// the tile functions of each format (expert_nvfp4_inl.h, expert_wide_inl.h) and the driver
// (expert.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::avx512 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

template <int B>
struct ExpertTile {
  const uint8_t* band[B];  // start of each band: pack/format/expert_layout.h
  const float* grid[B];    // kFp8: the scales of the band's rows, one for each 128 columns
  uint32_t cols;
  const int8_t* q;  // kNvfp4: first row of the tile, as QuantizedRows
  const float* x_scale;
  const int32_t* sum16;
  const float* x;  // others: first row of the tile
  size_t x_stride;
};

}  // namespace
}  // namespace hearth::avx512
