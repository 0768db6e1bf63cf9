// Sizes of every buffer of a pass, in one place.
#include "runtime/backend/cpu/pass_buffers.h"

#include <algorithm>

namespace hearth {
namespace {

void ReserveQuantize(ScratchArena& arena, QuantizeBuffers& q, size_t rows, uint32_t cols) {
  const size_t blocks = ActivationBlocks(cols);
  arena.Reserve(q.q, rows * blocks * kActivationBlockValues);
  arena.Reserve(q.scale, rows * blocks);
  arena.Reserve(q.sum16, rows * blocks * 2);
}

void ReserveMixers(ScratchArena& arena, PassBuffers& b, const ModelGeometry& g, size_t rows,
                   const PassBounds& bounds) {
  const GdnGeometry& n = g.gdn;
  arena.Reserve(b.gdn_projected, rows * n.conv_channels());
  arena.Reserve(b.conv_in, (rows + n.conv_taps) * n.conv_channels());
  arena.Reserve(b.qkv, rows * n.conv_channels());
  arena.Reserve(b.z, rows * n.value_dim());
  arena.Reserve(b.a, rows * n.value_head_count);
  arena.Reserve(b.b, rows * n.value_head_count);
  arena.Reserve(b.decay, rows * n.value_head_count);
  arena.Reserve(b.chunk_scratch,
                bounds.workers * GdnChunkedScratchFloats(GdnChunkedArgs{}.chunk_rows,
                                                         n.key_head_dim, n.value_head_dim));
  const AttentionGeometry& a = g.attention;
  const size_t width = size_t{a.head_count} * a.head_dim;
  arena.Reserve(b.mixed, rows * std::max<size_t>(n.value_dim(), width));
  arena.Reserve(b.qg, rows * 2 * width);
  arena.Reserve(b.k, rows * a.kv_head_count * a.head_dim);
  arena.Reserve(b.v, rows * a.kv_head_count * a.head_dim);
  arena.Reserve(b.index, rows * (a.indexer_head_count + 1) * a.indexer_head_dim);
  arena.Reserve(b.cos, rows * (a.rotary_dim / 2));
  arena.Reserve(b.sin, rows * (a.rotary_dim / 2));
  arena.Reserve(b.block_cos, a.rotary_dim / 2);
  arena.Reserve(b.block_sin, a.rotary_dim / 2);
  arena.Reserve(b.positions, rows * bounds.chosen_max);
  arena.Reserve(b.position_count, rows);
  arena.Reserve(b.attend_scores,
                bounds.workers * bounds.chosen_max * (a.head_count / a.kv_head_count));
  arena.Reserve(b.block_scores, bounds.workers * bounds.blocks_max);
  arena.Reserve(b.top_k_scratch,
                bounds.workers * std::max<size_t>(bounds.blocks_max, g.moe.expert_count));
  arena.Reserve(b.chosen_blocks, bounds.workers * size_t{a.block_count_max});
}

}  // namespace

PassBounds BoundsOf(const ModelGeometry& g, const PassLimits& limits, uint32_t worker_count) {
  const AttentionGeometry& a = g.attention;
  return {.rows = std::max(limits.prompt_rows_max, limits.window_rows_max),
          .window_rows = limits.window_rows_max,
          .workers = worker_count,
          .chosen_max = (a.block_count_max + 1) * a.block_tokens,
          .blocks_max = g.context_tokens_max / a.block_tokens + 1};
}

void ReservePassBuffers(ScratchArena& arena, PassBuffers& b, const ModelGeometry& g,
                        const PassBounds& bounds) {
  const size_t rows = bounds.rows;
  const size_t d = g.stream_dim();
  arena.Reserve(b.h, rows * d);
  arena.Reserve(b.hn, rows * d);
  arena.Reserve(b.gate, rows * d);
  arena.Reserve(b.low, rows * g.hc_rank);
  arena.Reserve(b.inject, rows * g.stream_count);
  arena.Reserve(b.u, rows * g.hidden);
  arena.Reserve(b.y, rows * g.hidden);
  const uint32_t widest = std::max(
      {g.stream_dim(), g.hc_rank, g.gdn.value_dim(), g.attention.head_count * g.attention.head_dim,
       g.moe.shared_width, g.ngram.row_count != 0 ? g.ngram.embed_dim() : 0});
  ReserveQuantize(arena, b.quantized, rows, widest);
  ReserveQuantize(arena, b.u_quantized, rows, g.hidden);
  ReserveMixers(arena, b, g, rows, bounds);
  if (g.ngram.row_count != 0) {
    const size_t history = size_t{g.ngram.conv_taps - 1} * g.ngram.ngram_size;
    arena.Reserve(b.ngram_rows, rows * g.ngram.head_count());
    arena.Reserve(b.ngram_embed, rows * g.ngram.embed_dim());
    arena.Reserve(b.ngram_key, rows * d);
    arena.Reserve(b.ngram_query, rows * d);
    arena.Reserve(b.ngram_value, rows * g.hidden);
    arena.Reserve(b.ngram_conv_in, (history + rows) * d);
  }
  arena.Reserve(b.router_logits, rows * g.moe.expert_count);
  arena.Reserve(b.route_expert, rows * g.moe.experts_per_token);
  arena.Reserve(b.route_weight, rows * g.moe.experts_per_token);
  arena.Reserve(b.ahead_u, size_t{bounds.window_rows} * g.hidden);
  arena.Reserve(b.ahead_inject, size_t{bounds.window_rows} * g.stream_count);
  arena.Reserve(b.ahead_expert, size_t{bounds.window_rows} * g.moe.experts_per_token);
  arena.Reserve(b.shared_gate, rows * g.moe.shared_width);
  arena.Reserve(b.shared_up, rows * g.moe.shared_width);
  arena.Reserve(b.shared_y, rows * g.hidden);
  arena.Reserve(b.shared_scale, rows);
  arena.Reserve(b.expert_output, rows * g.moe.experts_per_token * g.hidden);
  if (g.has_mtp) {
    arena.Reserve(b.draft_embed, rows * g.hidden);
    arena.Reserve(b.draft_hidden, rows * d);
  }
}

}  // namespace hearth
