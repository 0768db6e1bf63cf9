// What the kernels of sparse attention share: where a row stands and what it attends to.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kEveryLane = 0xFFFFFFFFu;

struct QsaRowPlace {
  const GpuLayerState* state;
  uint32_t position;
};

__device__ inline QsaRowPlace PlaceOf(const GpuPassTable& pass, uint32_t layer, uint32_t row) {
  const GpuSegment& segment = pass.segments[pass.row_segment[row]];
  return {segment.layers + layer, segment.base + (row - segment.row_begin)};
}

// The first position that the pass gives the sequence of `row`.
__device__ inline uint32_t PassBegin(const GpuPassTable& pass, uint32_t row) {
  return pass.segments[pass.row_segment[row]].base;
}

// The positions of one row, ascending: all up to its own, or those of `blocks` and of the tail that
// no complete block covers.
struct QsaPositions {
  const uint32_t* blocks = nullptr;  // (block_count_max); null: all positions
  uint32_t count = 0;
  uint32_t block_tokens = 1;
  uint32_t of_blocks = 0;   // positions that lie in `blocks`
  uint32_t tail_begin = 0;  // position

  __device__ QsaPositions(uint32_t position, const uint32_t* chosen, uint32_t block_count_max,
                          uint32_t block_tokens_in)
      : block_tokens(block_tokens_in) {
    const uint32_t complete = (position + 1) / block_tokens;
    count = position + 1;
    if (complete <= block_count_max) return;
    blocks = chosen;
    of_blocks = block_count_max * block_tokens;
    tail_begin = complete * block_tokens;
    count = of_blocks + (position + 1 - tail_begin);
  }
  // i < count.
  __device__ uint32_t At(uint32_t i) const {
    if (blocks == nullptr) return i;
    if (i >= of_blocks) return tail_begin + (i - of_blocks);
    return blocks[i / block_tokens] * block_tokens + i % block_tokens;
  }
};

__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = __fadd_rn(x, __shfl_xor_sync(kEveryLane, x, offset));
  }
  return x;
}

}  // namespace hearth
