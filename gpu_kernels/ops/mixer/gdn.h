// Gated DeltaNet between its projections (runtime/backend/cpu/gdn_mixer.cc): causal convolution,
// gates, the gated delta rule of every value head, gated norm. State: pass_table.h.
//
// Window: LaunchGdnWindow. Prompt: LaunchGdnConvolve, LaunchGdnPrompt (which leaves the state
// committed: nothing is pending afterwards).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/format/geometry.h"

namespace hearth {

inline constexpr uint32_t kGdnWindowRowsMax = 16;  // of one segment, and of a set of pending rows
inline constexpr uint32_t kGdnChunkRows = 64;

// q heads, k heads and v heads of a row of `channels` = 2 * key_heads * key_dim + value_heads *
// value_dim floats, in this order. Value head h reads key head h / (value_heads / key_heads).
// key_dim and value_dim: 32, 64 or 128.
struct GpuGdnShape {
  uint32_t key_heads = 0;
  uint32_t value_heads = 0;
  uint32_t key_dim = 0;    // of one head
  uint32_t value_dim = 0;  // of one head
  uint32_t taps = 0;       // 1 to 8
  uint32_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  uint32_t mixed_dim() const { return value_heads * value_dim; }
};

// What the projections of a layer give for the rows of a pass, and its small weights:
//   qkv = silu(conv(projected)); q = q / sqrt(sum q^2 + 1e-6) / sqrt(key_dim), k = k / sqrt(sum k^2
//   + 1e-6) per head; beta = sigmoid(b); g = -exp(a_log) * softplus(a + dt_bias); decay = exp(g)
// Rows before a segment's first come from the conv ring, which takes the projected rows; those
// before position 0 are zero.
struct GpuGdnInputs {
  const float* projected = nullptr;  // (rows, channels)
  const float* b = nullptr;          // (rows, value_heads)
  const float* a = nullptr;          // (rows, value_heads)
  const float* conv = nullptr;       // (taps, channels)
  const float* a_log = nullptr;      // (value_heads)
  const float* dt_bias = nullptr;    // (value_heads)
};

// A prompt's rows before the delta rule.
struct GpuGdnConvolveArgs {
  GpuPassTable pass;
  uint32_t layer = 0;
  GpuGdnShape shape;
  GpuGdnInputs in;
  float* qkv = nullptr;        // (rows, channels)
  float* log_decay = nullptr;  // (rows, value_heads): g
  float* beta = nullptr;       // (rows, value_heads)
};

// mixed = (RmsNorm per head of the delta rule's output) * norm * gate(z), and its quantised form of
// value_heads * value_dim columns.
struct GpuGatedNormArgs {
  const float* z = nullptr;     // (rows, value_heads * value_dim)
  const float* norm = nullptr;  // (value_dim), plain weight
  float epsilon = 0;
  OutputGate gate = OutputGate::kSigmoid;
  float* mixed = nullptr;  // (rows, value_heads * value_dim); a window may leave it null
  QuantizedOut mixed_quantized;
};

// Applies the pending rows to delta_state (which is then the state before this window), then runs
// the window's rows on a copy that is not kept: qkv, decay and beta of these rows are left in the
// pending set 1 - parity.
struct GpuGdnWindowArgs {
  GpuPassTable pass;
  uint32_t layer = 0;
  GpuGdnShape shape;
  GpuGdnInputs in;
  GpuGatedNormArgs output;
};

// Applies the pending rows to delta_state, then runs the rows on it in chunks of kGdnChunkRows
// (GdnChunkedArgs of cpu_kernels/ops/gdn.h). `output.mixed` is also the raw output on the way.
struct GpuGdnPromptArgs {
  GpuPassTable pass;
  uint32_t layer = 0;
  GpuGdnShape shape;
  const float* qkv = nullptr;
  const float* log_decay = nullptr;
  const float* beta = nullptr;
  float* scratch = nullptr;  // GdnPromptScratchFloats(...)
  GpuGatedNormArgs output;
};

// Two matrices of a chunk for each value head, its keys and queries for each key head; a last short
// chunk of each segment takes a whole one.
constexpr size_t GdnPromptScratchFloats(uint32_t rows, uint32_t segments,
                                        const GpuGdnShape& shape) {
  const size_t chunks = size_t{rows} / kGdnChunkRows + segments;
  const size_t head = 2 * kGdnChunkRows * (kGdnChunkRows + 1);
  const size_t keys = 2 * size_t{kGdnChunkRows} * shape.key_dim;
  return chunks * (shape.value_heads * head + shape.key_heads * keys);
}

// Applies the pending rows of one segment to delta_state of the layers [0, layer_count) that have
// one: afterwards the host says pending_rows = 0. For snapshots.
struct GpuGdnFlushArgs {
  GpuPassTable pass;
  uint32_t segment = 0;
  uint32_t layer_count = 0;
  GpuGdnShape shape;
};

// Each enqueues and returns. InvalidArgument: a shape that it does not take.
absl::Status LaunchGdnConvolve(const GpuGdnConvolveArgs& args, CudaStreamView stream);
absl::Status LaunchGdnWindow(const GpuGdnWindowArgs& args, CudaStreamView stream);
absl::Status LaunchGdnPrompt(const GpuGdnPromptArgs& args, CudaStreamView stream);
absl::Status LaunchGdnFlush(const GpuGdnFlushArgs& args, CudaStreamView stream);

}  // namespace hearth
