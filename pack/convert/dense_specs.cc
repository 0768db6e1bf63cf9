#include "pack/convert/dense_specs.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hearth {
namespace {

using Shape = std::vector<uint64_t>;

class SpecList {
 public:
  explicit SpecList(const ModelGeometry& geometry) : g_(geometry) {}

  std::vector<MatrixSpec> Make() {
    Add("embed_tokens", {g_.vocab_count, g_.hidden});
    for (uint32_t i = 0; i < g_.layer_count(); ++i) AddLayer(i);
    AddHyperConnection("hyper_connection_mixer");
    Add("lm_head", {g_.vocab_count, g_.hidden});
    if (g_.has_mtp) AddMtp();
    return std::move(specs_);
  }

 private:
  void Add(std::string module, Shape shape) {
    specs_.push_back({.module = std::move(module), .is_bare = false, .shape = std::move(shape)});
  }
  void AddBare(std::string name, Shape shape) {
    specs_.push_back({.module = std::move(name), .is_bare = true, .shape = std::move(shape)});
  }

  void AddLayer(uint32_t i) {
    const std::string layer = absl::StrCat("layers.", i, ".");
    if (g_.ngram.row_count > 0 && g_.ngram.layer == i) AddNgramConsumer(layer + "ple.");
    AddBlockHyperConnection(layer + "attn_hyper_connection");
    if (g_.layers[i] == MixerKind::kQsa) {
      AddAttention(layer + "self_attn.");
    } else {
      AddGdn(layer + "linear_attn.");
    }
    AddBlockHyperConnection(layer + "mlp_hyper_connection");
    AddMoe(layer + "mlp.");
  }

  void AddHyperConnection(const std::string& name) {
    Add(name + ".hc_norm", {g_.stream_dim()});
    Add(name + ".input_mix_weight_down", {g_.hc_rank, g_.stream_dim()});
    Add(name + ".input_mix_weight_up", {g_.stream_dim(), g_.hc_rank});
  }

  void AddBlockHyperConnection(const std::string& name) {
    AddHyperConnection(name);
    Add(name + ".block_inject_weight", {g_.stream_count, g_.stream_dim()});
  }

  void AddAttention(const std::string& prefix) {
    const AttentionGeometry& a = g_.attention;
    const uint64_t query_dim = uint64_t{a.head_count} * a.head_dim;
    const uint64_t kv_dim = uint64_t{a.kv_head_count} * a.head_dim;
    Add(prefix + "q_proj", {2 * query_dim, g_.hidden});  // per head: query, then gate
    Add(prefix + "k_proj", {kv_dim, g_.hidden});
    Add(prefix + "v_proj", {kv_dim, g_.hidden});
    Add(prefix + "o_proj", {g_.hidden, query_dim});
    Add(prefix + "q_norm", {a.head_dim});
    Add(prefix + "k_norm", {a.head_dim});
    Add(prefix + "indexer.index_qk_proj",
        {uint64_t{a.indexer_head_count + 1} * a.indexer_head_dim, g_.hidden});
    Add(prefix + "indexer.q_layernorm", {a.indexer_head_dim});
    Add(prefix + "indexer.k_layernorm", {a.indexer_head_dim});
  }

  void AddGdn(const std::string& prefix) {
    const GdnGeometry& d = g_.gdn;
    Add(prefix + "in_proj_qkv", {d.conv_channels(), g_.hidden});
    Add(prefix + "in_proj_z", {d.value_dim(), g_.hidden});
    Add(prefix + "in_proj_a", {d.value_head_count, g_.hidden});
    Add(prefix + "in_proj_b", {d.value_head_count, g_.hidden});
    Add(prefix + "conv1d", {d.conv_channels(), 1, d.conv_taps});
    AddBare(prefix + "A_log", {d.value_head_count});
    AddBare(prefix + "dt_bias", {d.value_head_count});
    Add(prefix + "norm", {d.value_head_dim});
    Add(prefix + "out_proj", {g_.hidden, d.value_dim()});
  }

  void AddMoe(const std::string& prefix) {
    Add(prefix + "gate", {g_.moe.expert_count, g_.hidden});
    Add(prefix + "shared_expert.gate_proj", {g_.moe.shared_width, g_.hidden});
    Add(prefix + "shared_expert.up_proj", {g_.moe.shared_width, g_.hidden});
    Add(prefix + "shared_expert.down_proj", {g_.hidden, g_.moe.shared_width});
    Add(prefix + "shared_expert_gate", {1, g_.hidden});
  }

  void AddNgramConsumer(const std::string& prefix) {
    Add(prefix + "key_proj", {g_.stream_dim(), g_.ngram.embed_dim()});
    Add(prefix + "value_proj", {g_.hidden, g_.ngram.embed_dim()});
    Add(prefix + "norm_key", {g_.stream_dim()});
    Add(prefix + "norm_query", {g_.stream_dim()});
    Add(prefix + "norm_conv", {g_.stream_dim()});
    Add(prefix + "conv1d", {g_.stream_dim(), 1, g_.ngram.conv_taps});
  }

  void AddMtp() {
    Add("mtp.pre_fc_norm_embedding", {g_.hidden});
    Add("mtp.pre_fc_norm_hidden", {g_.stream_dim()});
    Add("mtp.fc_embedding", {g_.hidden, g_.hidden});
    Add("mtp.fc_hidden", {g_.hidden, g_.hidden});
    AddBlockHyperConnection("mtp.layers.0.attn_hyper_connection");
    AddAttention("mtp.layers.0.self_attn.");
    AddBlockHyperConnection("mtp.layers.0.mlp_hyper_connection");
    AddMoe("mtp.layers.0.mlp.");
    AddHyperConnection("mtp.hyper_connection_mixer");
  }

  const ModelGeometry& g_;
  std::vector<MatrixSpec> specs_;
};

}  // namespace

std::vector<MatrixSpec> DenseSpecs(const ModelGeometry& geometry) {
  return SpecList(geometry).Make();
}

}  // namespace hearth
