// Where a row of a pass belongs, read from the pass table in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

struct RowPlace {
  const GpuSegment* segment;
  uint32_t index;     // of the row in its segment
  uint32_t position;  // in its sequence
};

__device__ inline RowPlace PlaceOf(const GpuPassTable& pass, uint32_t row) {
  const GpuSegment* segment = pass.segments + pass.row_segment[row];
  const uint32_t index = row - segment->row_begin;
  return {segment, index, segment->base + index};
}

// The row `back` rows before the one at `place`, of values that the pass keeps in rows (`row` is
// this one) and earlier passes left in `ring`; null before the sequence's start.
__device__ inline const float* EarlierRow(const GpuPassTable& pass, const RowPlace& place,
                                          uint32_t back, const float* row, const float* ring,
                                          uint32_t width) {
  const float* in_ring = ring + size_t{(place.position - back) & (pass.ring_rows - 1)} * width;
  const float* earlier = back <= place.index ? row - size_t{back} * width : in_ring;
  return back <= place.position ? earlier : nullptr;
}

}  // namespace hearth
