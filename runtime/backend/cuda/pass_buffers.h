// The memory of a pass on a card, in one place: what its launches leave for each other, and what
// host and card hand each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/dense/dense_gemm.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"
#include "gpu_kernels/ops/pass_table.h"
#include "gpu_kernels/ops/sampling/top_logits.h"
#include "pack/format/geometry.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/memory_layout.h"

namespace hearth {

// Rows that the head takes at a time.
inline constexpr uint32_t kHeadRows = 16;

// Device memory. Shapes are (rows, ...), rows for the longest pass unless said otherwise; D =
// streams * hidden.
struct GpuPassBuffers {
  float* h = nullptr;       // D: the residual streams
  float* hn = nullptr;      // D: normalised
  QuantizedOut hn_q;        // D
  float* gate = nullptr;    // D
  float* low = nullptr;     // hc_rank
  QuantizedOut low_q;       // hc_rank
  float* inject = nullptr;  // streams
  float* u = nullptr;       // hidden: what a block reads
  QuantizedOut u_q;         // hidden
  float* y = nullptr;       // hidden: what a mixer wrote

  // GDN
  float* projected = nullptr;  // channels
  float* z = nullptr;          // value_dim
  float* a = nullptr;          // value heads
  float* b = nullptr;          // value heads
  float* qkv = nullptr;        // channels, prompts
  float* log_decay = nullptr;  // value heads, prompts
  float* beta = nullptr;       // value heads, prompts
  float* gdn_scratch = nullptr;
  float* mixed = nullptr;  // max(value_dim, heads * head_dim): what out_proj / o_proj reads
  QuantizedOut mixed_q;

  // QSA
  float* qg = nullptr;  // heads * 2 * head_dim
  float* k = nullptr;   // kv_heads * head_dim
  float* v = nullptr;
  float* index = nullptr;      // (indexer_heads + 1) * indexer_dim
  float* cos = nullptr;        // rotary_dim / 2
  float* sin = nullptr;        // rotary_dim / 2
  float* block_cos = nullptr;  // rotary_dim / 2
  float* block_sin = nullptr;  // rotary_dim / 2
  std::byte* qsa_workspace = nullptr;

  // n-gram
  QuantizedOut ngram_embed_q;    // embed_dim
  float* ngram_key = nullptr;    // D
  float* ngram_value = nullptr;  // hidden
  float* ngram_gated = nullptr;  // D
  float* ngram_conv = nullptr;   // D

  // MoE
  float* router_logits = nullptr;    // experts
  uint32_t* route_expert = nullptr;  // ranks
  float* route_weight = nullptr;     // ranks
  int8_t* u_rotated_q = nullptr;     // hidden; where experts are in XT
  float* u_rotated_scale = nullptr;  // 1
  int32_t* u_rotated_sum = nullptr;  // 1
  float* expert_y = nullptr;         // ranks * hidden
  float* shared_gate = nullptr;      // shared_width
  float* shared_up = nullptr;        // shared_width
  QuantizedOut shared_q;             // shared_width
  float* shared_y = nullptr;         // hidden
  float* shared_scale = nullptr;     // 1

  // MTP
  float* draft_embed = nullptr;   // hidden
  QuantizedOut draft_embed_q;     // hidden
  float* draft_hidden = nullptr;  // D
  QuantizedOut draft_hidden_q;    // streams rows of hidden

  float* logits = nullptr;             // (kHeadRows, vocab)
  TopLogit* top = nullptr;             // (kHeadRows, kTopLogitsMax)
  uint32_t* top_exact = nullptr;       // (kHeadRows)
  std::byte* top_workspace = nullptr;  // of LaunchTopLogits

  GemmRoom gemm_room;  // expert_y's memory: no dense product runs beside the experts or their sum
};

// What the host writes before a pass and the card reads, first in pinned memory and then, copied,
// in the card's. The layout is the same in both.
struct PassImage {
  GpuSegment* segments = nullptr;     // (kPassSegmentsMax)
  uint32_t* row_segment = nullptr;    // (rows)
  uint32_t* segment_count = nullptr;  // one
  float* embed = nullptr;             // (rows, hidden): embeddings of the tokens
  float* ngram_embed = nullptr;       // (rows, embed_dim)
};

// Pinned memory: what the card leaves for the host and the host for the card.
struct HostPassBuffers {
  uint32_t* route_expert = nullptr;  // (rows, ranks)
  float* route_weight = nullptr;     // (rows, ranks)
  uint32_t* nan_flag = nullptr;      // one, see GpuPass
  float* u = nullptr;                // (rows, hidden)
  QuantizedOut u_q;
  uint8_t* on_card = nullptr;          // (rows, ranks), see GpuExpertIo
  float* expert_output = nullptr;      // (rows, ranks, hidden)
  uint32_t* ahead_expert = nullptr;    // (window rows, ranks)
  uint32_t* ahead_nan_flag = nullptr;  // one; a guess may be no number
  float* logits = nullptr;             // (kHeadRows, vocab)
  TopLogit* top = nullptr;             // (kHeadRows, kTopLogitsMax)
  uint32_t* top_exact = nullptr;       // (kHeadRows)
};

struct GpuPassShape {
  PassLimits limits;
  uint32_t rows_max = 0;      // of any pass
  bool rotated_rows = false;  // experts of some layer read rows in XT's form
  uint64_t qsa_workspace_bytes = 0;
};

inline uint32_t PassRowsMax(const PassLimits& limits) {
  return limits.prompt_rows_max > limits.window_rows_max ? limits.prompt_rows_max
                                                         : limits.window_rows_max;
}

// The int8 form of (rows, cols): QuantizedRows' shapes.
void ReserveQuantized(MemoryLayout& layout, QuantizedOut& q, uint64_t rows, uint32_t cols);

void ReservePassBuffers(MemoryLayout& layout, GpuPassBuffers& buffers, const ModelGeometry& g,
                        const GpuPassShape& shape);
// Once they have their places.
void ShareGemmRoom(GpuPassBuffers& buffers, const ModelGeometry& g, const GpuPassShape& shape);
// Those that the router ahead works in, beside a pass, for the rows of a window; `h` is the pass's.
void ReserveAheadBuffers(MemoryLayout& layout, GpuPassBuffers& ahead, const ModelGeometry& g,
                         const GpuPassShape& shape);
void ReservePassImage(MemoryLayout& layout, PassImage& image, const ModelGeometry& g,
                      const GpuPassShape& shape);
void ReserveHostPassBuffers(MemoryLayout& layout, HostPassBuffers& buffers, const ModelGeometry& g,
                            const GpuPassShape& shape);

}  // namespace hearth
