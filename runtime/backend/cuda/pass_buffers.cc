#include "runtime/backend/cuda/pass_buffers.h"

#include <algorithm>

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/mixer/gdn.h"

namespace hearth {
namespace {

void ReserveGdn(MemoryLayout& layout, GpuPassBuffers& b, const ModelGeometry& g, uint64_t rows) {
  const GdnGeometry& n = g.gdn;
  layout.Reserve(b.projected, rows * n.conv_channels());
  layout.Reserve(b.z, rows * n.value_dim());
  layout.Reserve(b.a, rows * n.value_head_count);
  layout.Reserve(b.b, rows * n.value_head_count);
  layout.Reserve(b.qkv, rows * n.conv_channels());
  layout.Reserve(b.log_decay, rows * n.value_head_count);
  layout.Reserve(b.beta, rows * n.value_head_count);
  const GpuGdnShape shape{.key_heads = n.key_head_count,
                          .value_heads = n.value_head_count,
                          .key_dim = n.key_head_dim,
                          .value_dim = n.value_head_dim,
                          .taps = n.conv_taps};
  layout.Reserve(b.gdn_scratch,
                 GdnPromptScratchFloats(static_cast<uint32_t>(rows), kPassSegmentsMax, shape));
}

void ReserveQsa(MemoryLayout& layout, GpuPassBuffers& b, const ModelGeometry& g, uint64_t rows,
                uint64_t workspace_bytes) {
  const AttentionGeometry& a = g.attention;
  layout.Reserve(b.qg, rows * a.head_count * 2 * a.head_dim);
  layout.Reserve(b.k, rows * a.kv_head_count * a.head_dim);
  layout.Reserve(b.v, rows * a.kv_head_count * a.head_dim);
  layout.Reserve(b.index, rows * (a.indexer_head_count + 1) * a.indexer_head_dim);
  for (float** table : {&b.cos, &b.sin, &b.block_cos, &b.block_sin}) {
    layout.Reserve(*table, rows * (a.rotary_dim / 2));
  }
  layout.Reserve(b.qsa_workspace, workspace_bytes);
}

void ReserveMoe(MemoryLayout& layout, GpuPassBuffers& b, const ModelGeometry& g,
                const GpuPassShape& shape) {
  const uint64_t rows = shape.rows_max;
  const uint32_t ranks = g.moe.experts_per_token;
  layout.Reserve(b.router_logits, rows * g.moe.expert_count);
  layout.Reserve(b.route_expert, rows * ranks);
  layout.Reserve(b.route_weight, rows * ranks);
  if (shape.rotated_rows) {
    layout.Reserve(b.u_rotated_q, rows * g.hidden);
    layout.Reserve(b.u_rotated_scale, rows);
    layout.Reserve(b.u_rotated_sum, rows);
  }
  layout.Reserve(b.expert_y, rows * ranks * g.hidden);
  layout.Reserve(b.shared_gate, rows * g.moe.shared_width);
  layout.Reserve(b.shared_up, rows * g.moe.shared_width);
  ReserveQuantized(layout, b.shared_q, rows, g.moe.shared_width);
  layout.Reserve(b.shared_y, rows * g.hidden);
  layout.Reserve(b.shared_scale, rows);
}

}  // namespace

void ReserveQuantized(MemoryLayout& layout, QuantizedOut& q, uint64_t rows, uint32_t cols) {
  const uint64_t blocks = ActivationBlocks(cols);
  layout.Reserve(q.q, rows * blocks * kActivationBlockValues);
  layout.Reserve(q.scale, rows * blocks);
  layout.Reserve(q.sum16, rows * blocks * 2);
}

void ReservePassBuffers(MemoryLayout& layout, GpuPassBuffers& b, const ModelGeometry& g,
                        const GpuPassShape& shape) {
  const uint64_t rows = shape.rows_max;
  const uint32_t d = g.stream_dim();
  const uint32_t width = std::max(g.gdn.value_dim(), g.attention.head_count * g.attention.head_dim);
  layout.Reserve(b.h, rows * d);
  layout.Reserve(b.hn, rows * d);
  ReserveQuantized(layout, b.hn_q, rows, d);
  layout.Reserve(b.gate, rows * d);
  layout.Reserve(b.low, rows * g.hc_rank);
  ReserveQuantized(layout, b.low_q, rows, g.hc_rank);
  layout.Reserve(b.inject, rows * g.stream_count);
  layout.Reserve(b.u, rows * g.hidden);
  ReserveQuantized(layout, b.u_q, rows, g.hidden);
  layout.Reserve(b.y, rows * g.hidden);
  ReserveGdn(layout, b, g, rows);
  layout.Reserve(b.mixed, rows * width);
  ReserveQuantized(layout, b.mixed_q, rows, width);
  ReserveQsa(layout, b, g, rows, shape.qsa_workspace_bytes);
  if (g.ngram.row_count != 0) {
    ReserveQuantized(layout, b.ngram_embed_q, rows, g.ngram.embed_dim());
    layout.Reserve(b.ngram_key, rows * d);
    layout.Reserve(b.ngram_value, rows * g.hidden);
    layout.Reserve(b.ngram_gated, rows * d);
    layout.Reserve(b.ngram_conv, rows * d);
  }
  ReserveMoe(layout, b, g, shape);
  if (g.has_mtp) {
    layout.Reserve(b.draft_embed, rows * g.hidden);
    ReserveQuantized(layout, b.draft_embed_q, rows, g.hidden);
    layout.Reserve(b.draft_hidden, rows * d);
    ReserveQuantized(layout, b.draft_hidden_q, rows * g.stream_count, g.hidden);
  }
  layout.Reserve(b.logits, uint64_t{kHeadRows} * g.vocab_count);
  layout.Reserve(b.top, uint64_t{kHeadRows} * kTopLogitsMax);
  layout.Reserve(b.top_exact, kHeadRows);
  layout.Reserve(b.top_workspace, TopLogitsWorkspaceBytes(kHeadRows));
}

void ShareGemmRoom(GpuPassBuffers& b, const ModelGeometry& g, const GpuPassShape& shape) {
  constexpr uint64_t kAlignBytes = 1024;
  const auto begin = reinterpret_cast<uintptr_t>(b.expert_y);
  const uint64_t skipped_bytes = AlignUp(begin, kAlignBytes) - begin;
  const uint64_t bytes =
      shape.rows_max * uint64_t{g.moe.experts_per_token} * g.hidden * sizeof(float);
  if (bytes <= skipped_bytes) return;
  b.gemm_room = {.data = reinterpret_cast<std::byte*>(b.expert_y) + skipped_bytes,
                 .bytes = bytes - skipped_bytes};
}

void ReserveAheadBuffers(MemoryLayout& layout, GpuPassBuffers& ahead, const ModelGeometry& g,
                         const GpuPassShape& shape) {
  const uint64_t rows = shape.limits.window_rows_max;
  const uint32_t d = g.stream_dim();
  layout.Reserve(ahead.hn, rows * d);
  ReserveQuantized(layout, ahead.hn_q, rows, d);
  layout.Reserve(ahead.gate, rows * d);
  layout.Reserve(ahead.low, rows * g.hc_rank);
  ReserveQuantized(layout, ahead.low_q, rows, g.hc_rank);
  layout.Reserve(ahead.u, rows * g.hidden);
  ReserveQuantized(layout, ahead.u_q, rows, g.hidden);
  layout.Reserve(ahead.router_logits, rows * g.moe.expert_count);
  layout.Reserve(ahead.route_expert, rows * g.moe.experts_per_token);
}

void ReservePassImage(MemoryLayout& layout, PassImage& image, const ModelGeometry& g,
                      const GpuPassShape& shape) {
  layout.Reserve(image.segments, kPassSegmentsMax);
  layout.Reserve(image.segment_count, 1);
  layout.Reserve(image.row_segment, shape.rows_max);
  layout.Reserve(image.embed, uint64_t{shape.rows_max} * g.hidden);
  if (g.ngram.row_count != 0) {
    layout.Reserve(image.ngram_embed, uint64_t{shape.rows_max} * g.ngram.embed_dim());
  }
}

void ReserveHostPassBuffers(MemoryLayout& layout, HostPassBuffers& b, const ModelGeometry& g,
                            const GpuPassShape& shape) {
  const uint64_t rows = shape.rows_max;
  const uint64_t entries = rows * g.moe.experts_per_token;
  layout.Reserve(b.route_expert, entries);
  layout.Reserve(b.route_weight, entries);
  layout.Reserve(b.nan_flag, 1);
  layout.Reserve(b.u, rows * g.hidden);
  ReserveQuantized(layout, b.u_q, rows, g.hidden);
  layout.Reserve(b.on_card, entries);
  layout.Reserve(b.expert_output, entries * g.hidden);
  layout.Reserve(b.ahead_nan_flag, 1);
  layout.Reserve(b.ahead_expert, uint64_t{shape.limits.window_rows_max} * g.moe.experts_per_token);
  layout.Reserve(b.logits, uint64_t{kHeadRows} * g.vocab_count);
  layout.Reserve(b.top, uint64_t{kHeadRows} * kTopLogitsMax);
  layout.Reserve(b.top_exact, kHeadRows);
}

}  // namespace hearth
