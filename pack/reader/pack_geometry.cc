#include "pack/reader/pack_geometry.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

class ShapeList {
 public:
  explicit ShapeList(const ModelGeometry& geometry) : g_(geometry) {}

  void Add(const std::string& name, uint32_t rows, uint32_t cols) {
    shapes_.push_back({.name = name, .rows = rows, .cols = cols});
  }
  void AddVector(const std::string& name, uint32_t count) { Add(name, 1, count); }

  // Without the injection: the mixer before the head only reads the streams.
  void AddStreamRead(const std::string& p) {
    AddVector(p + "hc_norm", g_.stream_dim());
    Add(p + "input_mix_weight_down", g_.hc_rank, g_.stream_dim());
    Add(p + "input_mix_weight_up", g_.stream_dim(), g_.hc_rank);
  }
  void AddHyperConnection(const std::string& p) {
    AddStreamRead(p);
    Add(p + "block_inject_weight", g_.stream_count, g_.stream_dim());
  }
  void AddGdn(const std::string& p) {
    const GdnGeometry& d = g_.gdn;
    Add(p + "in_proj_qkv", d.conv_channels(), g_.hidden);
    Add(p + "in_proj_z", d.value_dim(), g_.hidden);
    Add(p + "in_proj_a", d.value_head_count, g_.hidden);
    Add(p + "in_proj_b", d.value_head_count, g_.hidden);
    Add(p + "out_proj", g_.hidden, d.value_dim());
    Add(p + "conv1d", d.conv_taps, d.conv_channels());
    AddVector(p + "A_log", d.value_head_count);
    AddVector(p + "dt_bias", d.value_head_count);
    AddVector(p + "norm", d.value_head_dim);
  }
  void AddAttention(const std::string& p) {
    const AttentionGeometry& a = g_.attention;
    Add(p + "q_proj", 2 * a.head_count * a.head_dim, g_.hidden);  // query and gate of each head
    Add(p + "k_proj", a.kv_head_count * a.head_dim, g_.hidden);
    Add(p + "v_proj", a.kv_head_count * a.head_dim, g_.hidden);
    Add(p + "o_proj", g_.hidden, a.head_count * a.head_dim);
    AddVector(p + "q_norm", a.head_dim);
    AddVector(p + "k_norm", a.head_dim);
    Add(p + "indexer.index_qk_proj", (a.indexer_head_count + 1) * a.indexer_head_dim, g_.hidden);
    AddVector(p + "indexer.q_layernorm", a.indexer_head_dim);
    AddVector(p + "indexer.k_layernorm", a.indexer_head_dim);
  }
  void AddMoe(const std::string& p) {
    Add(p + "gate", g_.moe.expert_count, g_.hidden);
    Add(p + "shared_expert_gate", 1, g_.hidden);
    Add(p + "shared_expert.gate_proj", g_.moe.shared_width, g_.hidden);
    Add(p + "shared_expert.up_proj", g_.moe.shared_width, g_.hidden);
    Add(p + "shared_expert.down_proj", g_.hidden, g_.moe.shared_width);
  }
  void AddNgram(const std::string& p) {
    Add(p + "key_proj", g_.stream_dim(), g_.ngram.embed_dim());
    Add(p + "value_proj", g_.hidden, g_.ngram.embed_dim());
    AddVector(p + "norm_key", g_.stream_dim());
    AddVector(p + "norm_query", g_.stream_dim());
    AddVector(p + "norm_conv", g_.stream_dim());
    Add(p + "conv1d", g_.ngram.conv_taps, g_.stream_dim());
  }
  void AddLayer(const std::string& p, MixerKind kind) {
    AddHyperConnection(p + "attn_hyper_connection.");
    AddHyperConnection(p + "mlp_hyper_connection.");
    kind == MixerKind::kGdn ? AddGdn(p + "linear_attn.") : AddAttention(p + "self_attn.");
    AddMoe(p + "mlp.");
  }

  std::vector<TensorShape> Take() { return std::move(shapes_); }

 private:
  const ModelGeometry& g_;
  std::vector<TensorShape> shapes_;
};

absl::Status CheckTensors(const TensorFile& file, std::span<const TensorShape> expected) {
  for (const TensorShape& shape : expected) {
    const TensorInfo* found = file.Find(shape.name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.file().path(), ": tensor ", shape.name, " is missing"));
    }
    if (found->rows != shape.rows || found->cols != shape.cols) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.file().path(), ": tensor ", shape.name, ": expected (", shape.rows,
                       ", ", shape.cols, "), found (", found->rows, ", ", found->cols, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ExpertFile& experts, const ModelGeometry& g) {
  const std::string& path = experts.file().path();
  if (experts.layer_count() != g.layer_count_with_mtp() ||
      experts.expert_count() != g.moe.expert_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected ", g.layer_count_with_mtp(), " layers of ", g.moe.expert_count,
        " experts, found ", experts.layer_count(), " of ", experts.expert_count()));
  }
  for (uint32_t layer = 0; layer < experts.layer_count(); ++layer) {
    const ExpertLayout& layout = experts.layout(LayerId(layer));
    if (layout.hidden != g.hidden || layout.width != g.moe.expert_width) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": layer ", layer, ": expected hidden ", g.hidden, ", width ",
                       g.moe.expert_width, ", found ", layout.hidden, ", ", layout.width));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TensorShape> ExpectedDenseTensors(const ModelGeometry& g) {
  ShapeList list(g);
  list.Add("embed_tokens", g.vocab_count, g.hidden);
  list.Add("lm_head", g.vocab_count, g.hidden);
  list.AddStreamRead("hyper_connection_mixer.");
  for (uint32_t i = 0; i < g.layer_count(); ++i) {
    const std::string prefix = absl::StrCat("layers.", i, ".");
    list.AddLayer(prefix, g.layers[i]);
    if (g.ngram.row_count > 0 && i == g.ngram.layer) list.AddNgram(prefix + "ple.");
  }
  return list.Take();
}

std::vector<TensorShape> ExpectedMtpTensors(const ModelGeometry& g) {
  if (!g.has_mtp) return {};
  ShapeList list(g);
  list.AddVector("mtp.pre_fc_norm_embedding", g.hidden);
  list.AddVector("mtp.pre_fc_norm_hidden", g.stream_dim());
  list.Add("mtp.fc_embedding", g.hidden, g.hidden);
  list.Add("mtp.fc_hidden", g.hidden, g.hidden);
  list.AddStreamRead("mtp.hyper_connection_mixer.");
  list.AddLayer("mtp.layers.0.", MixerKind::kQsa);
  return list.Take();
}

absl::Status CheckPackGeometry(const Pack& pack) {
  const ModelGeometry& g = pack.manifest.geometry;
  HEARTH_RETURN_IF_ERROR(CheckTensors(pack.dense, ExpectedDenseTensors(g)));
  if (pack.mtp != nullptr) {
    HEARTH_RETURN_IF_ERROR(CheckTensors(*pack.mtp, ExpectedMtpTensors(g)));
  }
  HEARTH_RETURN_IF_ERROR(CheckExperts(pack.experts, g));
  if (pack.ngram != nullptr &&
      (pack.ngram->row_count() != g.ngram.row_count || pack.ngram->row_dim() != g.ngram.row_dim)) {
    return absl::InvalidArgumentError(absl::StrCat(
        pack.ngram->file().path(), ": expected ", g.ngram.row_count, " rows of ", g.ngram.row_dim,
        ", found ", pack.ngram->row_count(), " of ", pack.ngram->row_dim()));
  }
  return absl::OkStatus();
}

}  // namespace hearth
