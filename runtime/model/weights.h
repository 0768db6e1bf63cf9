// The dense weights of a model, bound by name and shape. Everything lives in one mapping that this
// object owns; the views in it stay valid while it lives.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/geometry.h"
#include "pack/format/matrix_layout.h"
#include "pack/reader/pack.h"
#include "runtime/base/file.h"

namespace hearth {

// D = stream_count * hidden. Shapes are (rows, cols) = (outputs, inputs).
struct HyperConnectionWeights {
  std::span<const float> norm;  // (D)
  MatrixView down;              // (hc_rank, D)
  MatrixView up;                // (D, hc_rank)
  MatrixView inject;            // (stream_count, D); no rows in a final mixer
};

struct GdnWeights {
  MatrixView qkv;                  // (conv_channels, hidden): rows q | k | v
  MatrixView z;                    // (value_dim, hidden)
  MatrixView b;                    // (value_heads, hidden)
  MatrixView a;                    // (value_heads, hidden)
  MatrixView out;                  // (hidden, value_dim)
  std::span<const float> conv;     // (taps, conv_channels)
  std::span<const float> a_log;    // (value_heads)
  std::span<const float> dt_bias;  // (value_heads)
  std::span<const float> norm;     // (value_head_dim), plain weight
};

struct QsaWeights {
  MatrixView q;  // (heads * 2 * head_dim, hidden): per head query | gate
  MatrixView k;  // (kv_heads * head_dim, hidden)
  MatrixView v;
  MatrixView o;                         // (hidden, heads * head_dim)
  std::span<const float> q_norm;        // (head_dim)
  std::span<const float> k_norm;        // (head_dim)
  MatrixView index_qk;                  // ((indexer_heads + 1) * indexer_dim, hidden)
  std::span<const float> index_q_norm;  // (indexer_dim)
  std::span<const float> index_k_norm;
};

struct MoeWeights {
  MatrixView router;       // (expert_count, hidden)
  MatrixView shared_gate;  // (shared_width, hidden)
  MatrixView shared_up;
  MatrixView shared_down;         // (hidden, shared_width)
  MatrixView shared_expert_gate;  // (1, hidden)
};

struct NgramWeights {
  MatrixView key;                     // (D, embed_dim)
  MatrixView value;                   // (hidden, embed_dim)
  std::span<const float> norm_key;    // (D)
  std::span<const float> norm_query;  // (D)
  std::span<const float> norm_conv;   // (D)
  std::span<const float> conv;        // (taps, D)
};

struct LayerWeights {
  MixerKind mixer = MixerKind::kGdn;
  HyperConnectionWeights mixer_hc;  // before the mixer
  HyperConnectionWeights moe_hc;    // before the experts
  GdnWeights gdn;                   // when mixer is kGdn
  QsaWeights qsa;                   // when mixer is kQsa
  MoeWeights moe;
  std::optional<NgramWeights> ngram;
};

struct MtpWeights {
  std::span<const float> norm_embedding;  // (hidden)
  std::span<const float> norm_hidden;     // (D), one group over all of it
  MatrixView fc_embedding;                // (hidden, hidden)
  MatrixView fc_hidden;                   // (hidden, hidden), the same for every stream
  LayerWeights layer;
  HyperConnectionWeights mixer;
};

enum class Q8Handling { kKeep, kDecodeToF32 };  // the latter for reference arithmetic

class ModelWeights {
 public:
  // Reads and checks every dense tensor of the pack. NotFound names a missing tensor,
  // FailedPrecondition a shape that disagrees with the manifest, DataLoss a damaged one.
  static absl::StatusOr<ModelWeights> Load(const Pack& pack, Q8Handling q8);

  ModelGeometry geometry;
  MatrixView embed_tokens;  // (vocab, hidden), kF32 or kBf16: rows are looked up
  MatrixView lm_head;       // (vocab, hidden)
  HyperConnectionWeights final_mixer;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;

  uint64_t bytes() const { return arena_.data().size(); }
  // Bytes of weights that a trunk pass reads whatever its routes: all matrices but the embedding
  // table.
  uint64_t bytes_per_pass() const { return bytes_per_pass_; }
  // The same for a draft pass of the MTP layer with its head.
  uint64_t draft_bytes_per_pass() const { return draft_bytes_per_pass_; }

  const LayerWeights& layer(uint32_t index) const {
    return index < layers.size() ? layers[index] : mtp->layer;
  }

  ModelWeights() = default;  // empty: a model comes from Load

 private:
  AnonymousMapping arena_{*AnonymousMapping::Create(0)};
  uint64_t bytes_per_pass_ = 0;
  uint64_t draft_bytes_per_pass_ = 0;
};

// Decodes one Q8 matrix to row-major fp32.
void DecodeQ8Matrix(const MatrixView& q8, std::span<float> out);

}  // namespace hearth
