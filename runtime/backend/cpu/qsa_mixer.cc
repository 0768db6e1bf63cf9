// Sparse attention: an indexer scores blocks of tokens, each query attends to the best blocks and
// to the tail that no complete block covers yet.
#include <algorithm>
#include <cmath>

#include "runtime/backend/cpu/pass.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

struct Shape {
  uint32_t kv_dim, q_stride, index_stride, half_rotary;
  explicit Shape(const AttentionGeometry& a)
      : kv_dim(a.kv_head_count * a.head_dim),
        q_stride(a.head_count * 2 * a.head_dim),
        index_stride((a.indexer_head_count + 1) * a.indexer_head_dim),
        half_rotary(a.rotary_dim / 2) {}
};

// Norm over each of `heads` heads of a row, then rotation; heads lie `head_stride` apart.
struct HeadNorm {
  float* x;
  uint32_t row_stride, head_stride, heads, dim;
  const float* weight;
};

void NormaliseAndRotate(PassContext& pass, const HeadNorm& h, uint32_t row_begin,
                        uint32_t row_end) {
  const AttentionGeometry& a = pass.geometry().attention;
  const Shape shape(a);
  for (uint32_t row = row_begin; row < row_end; ++row) {
    float* const x = h.x + size_t{row} * h.row_stride;
    pass.kernels.rms_norm.fn({.x = x,
                              .x_stride = h.head_stride,
                              .y = x,
                              .y_stride = h.head_stride,
                              .w = h.weight,
                              .w_count = h.dim,
                              .weight = NormWeight::kOnePlus,
                              .rows = h.heads,
                              .cols = h.dim,
                              .group = h.dim,
                              .epsilon = pass.geometry().norm_epsilon});
  }
  pass.kernels.rotary.fn({.x = h.x + size_t{row_begin} * h.row_stride,
                          .row_stride = h.row_stride,
                          .head_stride = h.head_stride,
                          .cos = pass.buffers.cos.data() + size_t{row_begin} * shape.half_rotary,
                          .sin = pass.buffers.sin.data() + size_t{row_begin} * shape.half_rotary,
                          .rows = row_end - row_begin,
                          .heads = h.heads,
                          .rotary_dim = a.rotary_dim});
}

// Pools the raw keys of block `block` (mean, norm, rotation at its first token) into block_keys.
void PoolBlock(PassContext& pass, const QsaWeights& w, QsaState& state, uint32_t block) {
  const AttentionGeometry& a = pass.geometry().attention;
  const uint32_t dim = a.indexer_head_dim;
  float* const key = state.block_keys.data() + size_t{block} * dim;
  std::fill_n(key, dim, 0.0f);
  for (uint32_t i = 0; i < a.block_tokens; ++i) {
    const uint32_t position = block * a.block_tokens + i;
    const float* raw = state.raw_keys.data() + size_t{position % state.raw_rows} * dim;
    for (uint32_t j = 0; j < dim; ++j) key[j] += raw[j];
  }
  for (uint32_t j = 0; j < dim; ++j) key[j] /= static_cast<float>(a.block_tokens);
  pass.kernels.rms_norm.fn({.x = key,
                            .x_stride = dim,
                            .y = key,
                            .y_stride = dim,
                            .w = w.index_k_norm.data(),
                            .w_count = dim,
                            .weight = NormWeight::kOnePlus,
                            .rows = 1,
                            .cols = dim,
                            .group = dim,
                            .epsilon = pass.geometry().norm_epsilon});
  std::span<float> cos = pass.buffers.block_cos;
  std::span<float> sin = pass.buffers.block_sin;
  RotaryTable(pass.rope_theta, a.rotary_dim, block * a.block_tokens, cos, sin);
  pass.kernels.rotary.fn({.x = key,
                          .row_stride = dim,
                          .head_stride = dim,
                          .cos = cos.data(),
                          .sin = sin.data(),
                          .rows = 1,
                          .heads = 1,
                          .rotary_dim = a.rotary_dim});
}

// Appends the segment's keys and values to the caches and pools the blocks that become complete.
void Append(PassContext& pass, const QsaWeights& w, QsaState& state, const PassSegment& s) {
  const AttentionGeometry& a = pass.geometry().attention;
  const Shape shape(a);
  PassBuffers& p = pass.buffers;
  const size_t count = size_t{s.rows} * shape.kv_dim;
  const size_t from = size_t{s.row_begin} * shape.kv_dim;
  const auto to = static_cast<ptrdiff_t>(size_t{s.base} * shape.kv_dim);
  std::copy_n(p.k.data() + from, count, state.k.begin() + to);
  std::copy_n(p.v.data() + from, count, state.v.begin() + to);
  const uint32_t dim = a.indexer_head_dim;
  for (uint32_t i = 0; i < s.rows; ++i) {
    const float* raw = p.index.data() + size_t{s.row_begin + i} * shape.index_stride +
                       size_t{a.indexer_head_count} * dim;
    const uint32_t position = s.base + i;
    std::copy_n(raw, dim, state.raw_keys.data() + size_t{position % state.raw_rows} * dim);
    if ((position + 1) % a.block_tokens == 0) PoolBlock(pass, w, state, position / a.block_tokens);
  }
}

// The positions that a row at `position` attends to, ascending: all while they fit the budget, else
// those of the best blocks and the tail.
void ChoosePositions(PassContext& pass, const QsaState& state, uint32_t worker, uint32_t row,
                     uint32_t position) {
  const AttentionGeometry& a = pass.geometry().attention;
  PassBuffers& p = pass.buffers;
  uint32_t* out = p.positions.data() + size_t{row} * pass.chosen_max;
  const uint32_t blocks = (position + 1) / a.block_tokens;
  uint32_t count = 0;
  if (blocks > a.block_count_max) {
    float* const scores = p.block_scores.data() + size_t{worker} * pass.blocks_max;
    const Shape shape(a);
    pass.kernels.block_score.fn(
        {.q = p.index.data() + size_t{row} * shape.index_stride,
         .keys = state.block_keys.data(),
         .score = scores,
         .heads = a.indexer_head_count,
         .dim = a.indexer_head_dim,
         .block_count = blocks,
         .scale = 1.0f / std::sqrt(static_cast<float>(a.indexer_head_dim))});
    uint32_t* const chosen = p.chosen_blocks.data() + size_t{worker} * a.block_count_max;
    const size_t scratch_stride = p.top_k_scratch.size() / pass.team.worker_count();
    const bool ok =
        pass.kernels.top_k.fn({.values = scores,
                               .count = blocks,
                               .k = a.block_count_max,
                               .index = chosen,
                               .scratch = p.top_k_scratch.data() + worker * scratch_stride});
    // A score that is not a number comes from activations that the router will refuse by name.
    if (ok) std::sort(chosen, chosen + a.block_count_max);
    for (uint32_t i = 0; i < a.block_count_max; ++i) {
      const uint32_t block = ok ? chosen[i] : i;
      for (uint32_t j = 0; j < a.block_tokens; ++j) out[count++] = block * a.block_tokens + j;
    }
    for (uint32_t t = blocks * a.block_tokens; t <= position; ++t) out[count++] = t;
  } else {
    for (uint32_t t = 0; t <= position; ++t) out[count++] = t;
  }
  p.position_count[row] = count;
}

// How many query heads of one K/V head go into one item of work: as many as leave an item for every
// worker, because an item reads its keys and values once.
uint32_t HeadsPerItem(const AttentionGeometry& a, uint32_t rows, uint32_t workers) {
  const uint32_t shared = a.head_count / a.kv_head_count;
  for (uint32_t heads = shared; heads > 1; --heads) {
    if (shared % heads == 0 && uint64_t{rows} * (a.head_count / heads) >= workers) return heads;
  }
  return 1;
}

// Query heads [head, head + heads) of one row, gated: mixed[row][head ...].
void AttendHeads(PassContext& pass, const QsaState& state, uint32_t worker, uint32_t row,
                 uint32_t head, uint32_t heads) {
  const AttentionGeometry& a = pass.geometry().attention;
  const Shape shape(a);
  PassBuffers& p = pass.buffers;
  const float* const q = p.qg.data() + size_t{row} * shape.q_stride + size_t{head} * 2 * a.head_dim;
  const uint32_t shared = a.head_count / a.kv_head_count;
  const uint32_t kv_head = head / shared;
  float* const out = p.mixed.data() + (size_t{row} * a.head_count + head) * a.head_dim;
  pass.kernels.attend.fn(
      {.q = q,
       .k = state.k.data() + size_t{kv_head} * a.head_dim,
       .v = state.v.data() + size_t{kv_head} * a.head_dim,
       .kv_stride = shape.kv_dim,
       .positions = p.positions.data() + size_t{row} * pass.chosen_max,
       .count = p.position_count[row],
       .dim = a.head_dim,
       .scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim)),
       .scores = p.attend_scores.data() + size_t{worker} * shared * pass.chosen_max,
       .out = out,
       .heads = heads,
       .q_stride = 2 * a.head_dim,
       .out_stride = a.head_dim});
  for (uint32_t h = 0; h < heads; ++h) {
    float* const y = out + size_t{h} * a.head_dim;
    const float* const z = q + size_t{h} * 2 * a.head_dim + a.head_dim;
    pass.kernels.gate.fn({.x = y, .z = z, .y = y, .count = a.head_dim});
  }
}

}  // namespace

void RotaryTable(double theta, uint32_t rotary_dim, uint32_t position, std::span<float> cos,
                 std::span<float> sin) {
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double angle = position * std::pow(theta, -2.0 * i / rotary_dim);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

void FillRotaryTables(PassContext& pass) {
  const AttentionGeometry& a = pass.geometry().attention;
  const uint32_t half = a.rotary_dim / 2;
  for (const PassSegment& s : pass.segments) {
    for (uint32_t i = 0; i < s.rows; ++i) {
      const size_t at = size_t{s.row_begin + i} * half;
      RotaryTable(pass.rope_theta, a.rotary_dim, s.base + i, pass.buffers.cos.subspan(at, half),
                  pass.buffers.sin.subspan(at, half));
    }
  }
}

void RunQsa(PassContext& pass, uint32_t layer, const QsaWeights& w) {
  const ModelGeometry& g = pass.geometry();
  const AttentionGeometry& a = g.attention;
  const Shape shape(a);
  PassBuffers& p = pass.buffers;
  pass.projector.Run({.x = p.u.data(), .x_stride = g.hidden, .rows = pass.rows, .cols = g.hidden},
                     p.quantized,
                     {{&w.q, p.qg.data(), shape.q_stride},
                      {&w.k, p.k.data(), shape.kv_dim},
                      {&w.v, p.v.data(), shape.kv_dim},
                      {&w.index_qk, p.index.data(), shape.index_stride}});
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    NormaliseAndRotate(pass,
                       {.x = p.qg.data(),
                        .row_stride = shape.q_stride,
                        .head_stride = 2 * a.head_dim,
                        .heads = a.head_count,
                        .dim = a.head_dim,
                        .weight = w.q_norm.data()},
                       begin, end);
    NormaliseAndRotate(pass,
                       {.x = p.k.data(),
                        .row_stride = shape.kv_dim,
                        .head_stride = a.head_dim,
                        .heads = a.kv_head_count,
                        .dim = a.head_dim,
                        .weight = w.k_norm.data()},
                       begin, end);
    NormaliseAndRotate(pass,
                       {.x = p.index.data(),
                        .row_stride = shape.index_stride,
                        .head_stride = a.indexer_head_dim,
                        .heads = a.indexer_head_count,
                        .dim = a.indexer_head_dim,
                        .weight = w.index_q_norm.data()},
                       begin, end);
  });
  for (const PassSegment& s : pass.segments) {
    QsaState& state = s.sequence->qsa(layer);
    Append(pass, w, state, s);
    pass.team.ForEach(s.rows, [&](uint32_t worker, uint32_t i) {
      ChoosePositions(pass, state, worker, s.row_begin + i, s.base + i);
    });
    const uint32_t heads = HeadsPerItem(a, s.rows, pass.team.worker_count());
    const uint32_t items = a.head_count / heads;
    pass.team.ForEach(s.rows * items, [&](uint32_t worker, uint32_t item) {
      AttendHeads(pass, state, worker, s.row_begin + item / items, item % items * heads, heads);
    });
  }
  const uint32_t width = a.head_count * a.head_dim;
  pass.projector.Run({.x = p.mixed.data(), .x_stride = width, .rows = pass.rows, .cols = width},
                     p.quantized, {{&w.o, p.y.data(), g.hidden}});
}

}  // namespace hearth
