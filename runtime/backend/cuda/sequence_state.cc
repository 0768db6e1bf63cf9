#include "runtime/backend/cuda/sequence_state.h"

#include <algorithm>
#include <bit>

#include "gpu_kernels/ops/attention/qsa.h"

namespace hearth {
namespace {

void ReserveGdn(MemoryLayout& layout, GpuLayerState& s, const GdnGeometry& n,
                const SequenceShape& shape) {
  const uint64_t window = shape.window_rows_max;
  layout.Reserve(s.delta_state, uint64_t{n.value_head_count} * n.key_head_dim * n.value_head_dim);
  layout.Reserve(s.conv_ring, uint64_t{shape.ring_rows} * n.conv_channels());
  layout.Reserve(s.pending_qkv, 2 * window * n.conv_channels());
  layout.Reserve(s.pending_decay, 2 * window * n.value_head_count);
  layout.Reserve(s.pending_beta, 2 * window * n.value_head_count);
}

void ReserveQsa(MemoryLayout& layout, GpuLayerState& s, const ModelGeometry& g,
                const SequenceShape& shape) {
  const QsaStateBytes bytes = QsaStateBytesOf({.attention = g.attention,
                                               .norm_epsilon = g.norm_epsilon,
                                               .kv_format = shape.kv_format,
                                               .rows_max = shape.rows_max,
                                               .context_max = shape.context_tokens_max},
                                              shape.ring_rows);
  layout.Reserve(s.k, bytes.kv);
  layout.Reserve(s.v, bytes.kv);
  layout.Reserve(s.k_scale, bytes.kv_scale / sizeof(float));
  layout.Reserve(s.v_scale, bytes.kv_scale / sizeof(float));
  layout.Reserve(s.raw_keys, bytes.raw_keys / sizeof(float));
  layout.Reserve(s.block_keys, bytes.block_keys / sizeof(float));
}

}  // namespace

uint32_t RingRows(const ModelGeometry& g, const PassLimits& limits) {
  uint32_t history = std::max(g.gdn.conv_taps, g.attention.block_tokens);
  if (g.ngram.row_count != 0) {
    history = std::max(history, 2 * (g.ngram.conv_taps - 1) * g.ngram.ngram_size);
  }
  constexpr uint32_t kLeast = 9 + 9;  // of GpuPassTable, beside a window
  return std::bit_ceil(std::max(history + limits.window_rows_max, kLeast) + limits.window_rows_max);
}

void ReserveSequenceState(MemoryLayout& layout, SequenceState& state, const ModelGeometry& g,
                          const SequenceShape& shape) {
  state.layers.assign(g.layer_count() + 1, {});
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    if (layer < g.layer_count() && g.layers[layer] == MixerKind::kGdn) {
      ReserveGdn(layout, state.layers[layer], g.gdn, shape);
    } else {
      ReserveQsa(layout, state.layers[layer], g, shape);
    }
  }
  layout.Reserve(state.layer_table, state.layers.size());
  const uint64_t d = g.stream_dim();
  if (g.ngram.row_count != 0) layout.Reserve(state.ngram_ring, shape.ring_rows * d);
  layout.Reserve(state.hidden, HiddenRows(shape) * d);
  layout.Reserve(state.chain_hidden, d);
}

uint64_t SequenceStateBytes(const ModelGeometry& g, const SequenceShape& shape) {
  MemoryLayout layout;
  SequenceState state;
  ReserveSequenceState(layout, state, g, shape);
  return layout.bytes();
}

}  // namespace hearth
