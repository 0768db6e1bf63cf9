// The shape of a model: everything that code needs to know about it apart from its weights. Symbols
// and equations: the model's public reference; key names in comments are those of config.json's
// text_config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hearth {

enum class MixerKind : uint8_t { kGdn = 0, kQsa = 1 };  // layer_types: linear / full attention
enum class OutputGate : uint8_t { kSigmoid = 0, kSilu = 1 };  // output_gate_type

struct AttentionGeometry {     // QSA: sparse attention over selected blocks of tokens
  uint32_t head_count = 0;     // num_attention_heads
  uint32_t kv_head_count = 0;  // num_key_value_heads; divides head_count
  uint32_t head_dim = 0;
  uint32_t rotary_dim = 0;  // head_dim * partial_rotary_factor, even; the indexer rotates as many
  double rope_theta = 0;
  uint32_t indexer_head_count = 0;
  uint32_t indexer_head_dim = 0;  // >= rotary_dim
  uint32_t block_tokens = 0;      // indexer_compress_ratio
  uint32_t block_count_max = 0;   // indexer_budget / indexer_compress_ratio
};

struct GdnGeometry {  // gated delta net
  uint32_t key_head_count = 0;
  uint32_t value_head_count = 0;  // a multiple of key_head_count
  uint32_t key_head_dim = 0;
  uint32_t value_head_dim = 0;
  uint32_t conv_taps = 0;
  OutputGate output_gate = OutputGate::kSigmoid;
  uint32_t key_dim() const { return key_head_count * key_head_dim; }
  uint32_t value_dim() const { return value_head_count * value_head_dim; }
  uint32_t conv_channels() const { return 2 * key_dim() + value_dim(); }
};

struct MoeGeometry {
  uint32_t expert_count = 0;
  uint32_t experts_per_token = 0;
  uint32_t expert_width = 0;
  uint32_t shared_width = 0;
  bool renormalise = true;  // norm_topk_prob
};

struct NgramGeometry {      // hashed n-gram embedding; row_count == 0 means that the model has none
  uint32_t layer = 0;       // 0-based (ple_layer_ids is 1-based)
  uint32_t ngram_size = 0;  // 3: bigram and trigram heads
  uint32_t heads_per_ngram = 0;
  uint32_t row_dim = 0;  // values in one table row; head_count() * row_dim == embed dim
  uint32_t conv_taps = 0;
  int32_t eos_token = 0;               // cuts the context; fills it before the start
  uint64_t row_count = 0;              // with padding
  std::vector<uint64_t> multipliers;   // [ngram_size]
  std::vector<uint64_t> head_rows;     // [head_count()], primes
  std::vector<uint64_t> head_offsets;  // [head_count()]
  uint32_t head_count() const { return (ngram_size - 1) * heads_per_ngram; }
  uint32_t embed_dim() const { return head_count() * row_dim; }
};

struct ModelGeometry {
  uint32_t vocab_count = 0;
  uint32_t hidden = 0;
  std::vector<MixerKind> layers;  // one per trunk layer
  uint32_t stream_count = 0;      // hc_count
  uint32_t hc_rank = 0;           // hc_lowrank
  float norm_epsilon = 0;
  uint32_t context_tokens_max = 0;  // max_position_embeddings
  AttentionGeometry attention;
  GdnGeometry gdn;
  MoeGeometry moe;
  NgramGeometry ngram;
  bool has_mtp = false;  // one draft layer, of kind kQsa, with id layer_count()
  double mtp_rope_theta = 0;
  std::vector<int32_t> stop_tokens;  // generation_config eos_token_id

  uint32_t layer_count() const { return static_cast<uint32_t>(layers.size()); }
  uint32_t layer_count_with_mtp() const { return layer_count() + (has_mtp ? 1 : 0); }
  uint32_t stream_dim() const { return stream_count * hidden; }

  // InvalidArgument naming the field, what it holds and what would be accepted. Bounds every size,
  // so that code after this may multiply fields without overflow.
  absl::Status Validate() const;
};

}  // namespace hearth
