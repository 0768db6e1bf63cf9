// Weights of any geometry as views of one pattern in memory, for benchmarks: only sizes and time
// count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/weights.h"

namespace hearth {

// Views of one pattern: every Q8 scale and every float is tiny, none is a NaN.
class PatternWeights {
 public:
  explicit PatternWeights(std::span<const std::byte> pattern) : pattern_(pattern) {}

  void Fill(ModelWeights& w) {
    const ModelGeometry& g = w.geometry;
    w.embed_tokens = {.format = MatrixFormat::kBf16,
                      .rows = g.vocab_count,
                      .cols = g.hidden,
                      .data = pattern_};  // only its first rows are looked up
    w.lm_head = Matrix(MatrixFormat::kQ8, g.vocab_count, g.hidden);
    HyperConnection(g, false, w.final_mixer);
    w.layers.resize(g.layer_count());
    for (uint32_t l = 0; l < g.layer_count(); ++l) {
      const uint64_t before = bytes_;
      Layer(g, g.layers[l], w.layers[l]);
      layer_bytes_ = bytes_ - before;
    }
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t layer_bytes() const { return layer_bytes_; }  // matrices of the last layer

 private:
  MatrixView Matrix(MatrixFormat format, uint32_t rows, uint32_t cols) {
    const uint64_t bytes = MatrixBytes(format, rows, cols);
    bytes_ += bytes;
    return {.format = format, .rows = rows, .cols = cols, .data = pattern_.first(bytes)};
  }
  std::span<const float> Vector(size_t count) {
    return {reinterpret_cast<const float*>(pattern_.data()), count};
  }
  void HyperConnection(const ModelGeometry& g, bool inject, HyperConnectionWeights& w) {
    w.norm = Vector(g.stream_dim());
    w.down = Matrix(MatrixFormat::kQ8, g.hc_rank, g.stream_dim());
    w.up = Matrix(MatrixFormat::kQ8, g.stream_dim(), g.hc_rank);
    if (inject) w.inject = Matrix(MatrixFormat::kBf16, g.stream_count, g.stream_dim());
  }
  void Layer(const ModelGeometry& g, MixerKind mixer, LayerWeights& w) {
    const MatrixFormat q8 = MatrixFormat::kQ8;
    w.mixer = mixer;
    HyperConnection(g, true, w.mixer_hc);
    HyperConnection(g, true, w.moe_hc);
    if (mixer == MixerKind::kGdn) {
      const GdnGeometry& n = g.gdn;
      w.gdn = {.qkv = Matrix(q8, n.conv_channels(), g.hidden),
               .z = Matrix(q8, n.value_dim(), g.hidden),
               .b = Matrix(MatrixFormat::kBf16, n.value_head_count, g.hidden),
               .a = Matrix(MatrixFormat::kBf16, n.value_head_count, g.hidden),
               .out = Matrix(q8, g.hidden, n.value_dim()),
               .conv = Vector(size_t{n.conv_taps} * n.conv_channels()),
               .a_log = Vector(n.value_head_count),
               .dt_bias = Vector(n.value_head_count),
               .norm = Vector(n.value_head_dim)};
    } else {
      const AttentionGeometry& a = g.attention;
      const uint32_t kv = a.kv_head_count * a.head_dim;
      w.qsa = {.q = Matrix(q8, a.head_count * 2 * a.head_dim, g.hidden),
               .k = Matrix(q8, kv, g.hidden),
               .v = Matrix(q8, kv, g.hidden),
               .o = Matrix(q8, g.hidden, a.head_count * a.head_dim),
               .q_norm = Vector(a.head_dim),
               .k_norm = Vector(a.head_dim),
               .index_qk = Matrix(q8, (a.indexer_head_count + 1) * a.indexer_head_dim, g.hidden),
               .index_q_norm = Vector(a.indexer_head_dim),
               .index_k_norm = Vector(a.indexer_head_dim)};
    }
    w.moe = {.router = Matrix(MatrixFormat::kBf16, g.moe.expert_count, g.hidden),
             .shared_gate = Matrix(q8, g.moe.shared_width, g.hidden),
             .shared_up = Matrix(q8, g.moe.shared_width, g.hidden),
             .shared_down = Matrix(q8, g.hidden, g.moe.shared_width),
             .shared_expert_gate = Matrix(MatrixFormat::kBf16, 1, g.hidden)};
  }

  std::span<const std::byte> pattern_;
  uint64_t bytes_ = 0;
  uint64_t layer_bytes_ = 0;
};

}  // namespace hearth
