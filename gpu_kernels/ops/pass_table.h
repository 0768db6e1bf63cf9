// What a pass is, in device memory: which rows belong to which sequence and where those stand. Host
// code writes the table before the pass; kernels read it, so that a captured graph serves any
// sequences, positions and segmentation. Everything but the delta-rule state is kept by position
// and simply overwritten by later rows; a delta-rule state stays as it was before the last window,
// whose rows are pending: the next pass first applies as many of them as were kept. A commit is
// therefore a number on the host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

inline constexpr uint32_t kPassSegmentsMax = 16;  // sequences of one pass

enum class KvFormat : uint8_t {
  kBf16,  // 2 bytes a value
  kInt8   // a byte a value, one fp32 scale for each (position, K/V head)
};

// Device addresses of one sequence's share of one layer; those of the other mixer are null.
struct GpuLayerState {
  // GDN. Rings hold the row of position p at p % ring_rows; rings start as zeros.
  float* delta_state = nullptr;  // (value_heads, key_dim, value_dim): before the pending rows
  float* conv_ring = nullptr;    // (ring_rows, channels): inputs of the convolution
  // Rows of the last window, two sets, of which parity names the one that was written last:
  float* pending_qkv = nullptr;    // (2, window_rows_max, channels): convolved, normalised
  float* pending_decay = nullptr;  // (2, window_rows_max, value_heads): exp(g)
  float* pending_beta = nullptr;   // (2, window_rows_max, value_heads)
  // QSA.
  std::byte* k = nullptr;    // (context, kv_heads, head_dim) in the KvFormat, rotated
  std::byte* v = nullptr;    // the same, as projected
  float* k_scale = nullptr;  // (context, kv_heads) for kInt8
  float* v_scale = nullptr;
  float* raw_keys = nullptr;  // (ring_rows, indexer_dim)
  float* block_keys =
      nullptr;  // (context / block_tokens, indexer_dim): pooled, normalised, rotated
};

struct GpuSegment {
  const GpuLayerState* layers = nullptr;  // (layer_count + 1), the MTP layer last
  float* ngram_ring = nullptr;            // (ring_rows, D): inputs of the n-gram convolution
  uint32_t row_begin = 0;                 // of the pass
  uint32_t rows = 0;
  uint32_t base = 0;          // position of its first row
  uint32_t pending_rows = 0;  // rows of the last window that were kept and are still to be applied
  uint32_t parity = 0;        // set of pending rows that holds them; this pass writes the other one
};

// Passed to kernels by value.
struct GpuPassTable {
  const GpuSegment* segments = nullptr;     // device, (kPassSegmentsMax)
  const uint32_t* row_segment = nullptr;    // device, (rows max): segment of each row
  const uint32_t* segment_count = nullptr;  // device
  uint32_t rows = 0;                        // of the pass; fixed when a graph is captured
  uint32_t window_rows_max = 0;             // rows of a set of pending rows
  uint32_t ring_rows = 0;                   // a power of two, at least 9 + 9 + window_rows_max
};

}  // namespace hearth
