// What one tile of an expert product reads: U half-bands of weights (eight rows each, one for each
// lane) against R activation rows. Shared by the tile functions of each format (expert_nvfp4_inl.h,
// expert_wide_inl.h) and the loops around them (expert_driver_inl.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::avx2 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

struct HalfBand {
  const uint8_t* band;  // start of the whole band: pack/format/expert_layout.h
  uint32_t half;        // 0: rows 0 to 7 of the band, 1: rows 8 to 15
  const float* grid;    // kFp8: the scales of the band's rows, one for each 128 columns
};

template <int U>
struct ExpertTile {
  HalfBand unit[U];
  uint32_t cols;
  const int8_t* q;  // kNvfp4: first row of the tile, as QuantizedRows
  const float* x_scale;
  const int32_t* sum16;
  const float* x;  // others: first row of the tile
  size_t x_stride;
};

}  // namespace
}  // namespace hearth::avx2
