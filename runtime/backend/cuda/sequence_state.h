// What one sequence keeps in the memory of a card, and where. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_kernels/ops/pass_table.h"
#include "pack/format/geometry.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/memory_layout.h"

namespace hearth {

struct SequenceShape {
  uint32_t context_tokens_max = 0;
  uint32_t window_rows_max = 0;
  uint32_t rows_max = 0;  // of any pass
  uint32_t ring_rows = 0;
  KvFormat kv_format = KvFormat::kBf16;
};

// Rows of every ring: a power of two that holds what a row looks back to while a window and the
// drafts after it are written and dropped again.
uint32_t RingRows(const ModelGeometry& g, const PassLimits& limits);

// Device addresses.
struct SequenceState {
  std::vector<GpuLayerState> layers;     // (layer_count + 1), the MTP layer last
  GpuLayerState* layer_table = nullptr;  // the same, in device memory
  float* ngram_ring = nullptr;           // (ring_rows, D)
  float* hidden = nullptr;        // (hidden_rows(), D): that of position p in row p % hidden_rows()
  float* chain_hidden = nullptr;  // (D)
};

// The hidden states of the longest pass and of the row before it.
inline uint32_t HiddenRows(const SequenceShape& shape) { return shape.rows_max + 1; }

// All of it starts as zeros. `state` stays where it is until the layout is placed.
void ReserveSequenceState(MemoryLayout& layout, SequenceState& state, const ModelGeometry& g,
                          const SequenceShape& shape);

uint64_t SequenceStateBytes(const ModelGeometry& g, const SequenceShape& shape);

}  // namespace hearth
