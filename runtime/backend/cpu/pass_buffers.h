// Sizes of every buffer of a pass, in one place.
#pragma once

#include <cstdint>

#include "runtime/backend/cpu/pass.h"
#include "runtime/base/scratch_arena.h"

namespace hearth {

struct PassBounds {
  uint32_t rows = 0;         // most rows of a pass
  uint32_t window_rows = 0;  // most rows of a window pass
  uint32_t workers = 0;
  uint32_t chosen_max = 0;  // most positions that one row attends to
  uint32_t blocks_max = 0;  // most blocks of a context
};

PassBounds BoundsOf(const ModelGeometry& geometry, const PassLimits& limits, uint32_t worker_count);
void ReservePassBuffers(ScratchArena& arena, PassBuffers& buffers, const ModelGeometry& geometry,
                        const PassBounds& bounds);

}  // namespace hearth
