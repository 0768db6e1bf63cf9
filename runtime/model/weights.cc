#include "runtime/model/weights.h"

#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "runtime/base/check.h"
#include "runtime/base/load.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kTensorAlignBytes = 64;

// Where each tensor of a file lies in the arena, by name; hands out views and checks their shapes.
class Binder {
 public:
  struct Placed {
    MatrixView view;
    bool taken = false;
  };

  explicit Binder(std::string prefix) : prefix_(std::move(prefix)) {}

  void Add(const std::string& name, MatrixView view) { placed_[name] = {.view = view}; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  absl::Status Matrix(std::string_view name, uint64_t rows, uint64_t cols, MatrixView& out) {
    const std::string full = prefix_ + std::string(name);
    const auto it = placed_.find(full);
    if (it == placed_.end()) {
      return absl::NotFoundError(absl::StrCat("the pack has no tensor '", full, "'"));
    }
    const MatrixView& view = it->second.view;
    if (view.rows != rows || view.cols != cols) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor '", full, "': the manifest's geometry asks for ", rows, " x ", cols,
                       ", the pack holds ", view.rows, " x ", view.cols));
    }
    it->second.taken = true;
    out = view;
    return absl::OkStatus();
  }

  absl::Status Vector(std::string_view name, uint64_t rows, uint64_t cols,
                      std::span<const float>& out) {
    MatrixView view;
    HEARTH_RETURN_IF_ERROR(Matrix(name, rows, cols, view));
    if (view.format != MatrixFormat::kF32) {
      return absl::FailedPreconditionError(absl::StrCat("tensor '", prefix_, ToAbsl(name),
                                                        "': expected f32, found ",
                                                        MatrixFormatName(view.format)));
    }
    out = {reinterpret_cast<const float*>(view.data.data()), rows * cols};
    return absl::OkStatus();
  }

  absl::Status NothingLeft() const {
    for (const auto& [name, placed] : placed_) {
      if (!placed.taken) {
        return absl::FailedPreconditionError(
            absl::StrCat("the pack holds a tensor '", name, "' that this model has no place for"));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
  std::unordered_map<std::string, Placed> placed_;
};

absl::Status BindHyperConnection(Binder& binder, const std::string& name, const ModelGeometry& g,
                                 bool inject, HyperConnectionWeights& out) {
  const uint32_t d = g.stream_dim();
  HEARTH_RETURN_IF_ERROR(binder.Vector(name + ".hc_norm", 1, d, out.norm));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(name + ".input_mix_weight_down", g.hc_rank, d, out.down));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(name + ".input_mix_weight_up", d, g.hc_rank, out.up));
  if (!inject) return absl::OkStatus();
  return binder.Matrix(name + ".block_inject_weight", g.stream_count, d, out.inject);
}

absl::Status BindGdn(Binder& binder, const ModelGeometry& g, GdnWeights& out) {
  const GdnGeometry& n = g.gdn;
  const std::string p = "linear_attn.";
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "in_proj_qkv", n.conv_channels(), g.hidden, out.qkv));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "in_proj_z", n.value_dim(), g.hidden, out.z));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "in_proj_b", n.value_head_count, g.hidden, out.b));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "in_proj_a", n.value_head_count, g.hidden, out.a));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "out_proj", g.hidden, n.value_dim(), out.out));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "conv1d", n.conv_taps, n.conv_channels(), out.conv));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "A_log", 1, n.value_head_count, out.a_log));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "dt_bias", 1, n.value_head_count, out.dt_bias));
  return binder.Vector(p + "norm", 1, n.value_head_dim, out.norm);
}

absl::Status BindQsa(Binder& binder, const ModelGeometry& g, QsaWeights& out) {
  const AttentionGeometry& a = g.attention;
  const std::string p = "self_attn.";
  const uint32_t kv = a.kv_head_count * a.head_dim;
  const uint32_t index_rows = (a.indexer_head_count + 1) * a.indexer_head_dim;
  HEARTH_RETURN_IF_ERROR(
      binder.Matrix(p + "q_proj", uint64_t{a.head_count} * 2 * a.head_dim, g.hidden, out.q));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "k_proj", kv, g.hidden, out.k));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "v_proj", kv, g.hidden, out.v));
  HEARTH_RETURN_IF_ERROR(
      binder.Matrix(p + "o_proj", g.hidden, uint64_t{a.head_count} * a.head_dim, out.o));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "q_norm", 1, a.head_dim, out.q_norm));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "k_norm", 1, a.head_dim, out.k_norm));
  HEARTH_RETURN_IF_ERROR(
      binder.Matrix(p + "indexer.index_qk_proj", index_rows, g.hidden, out.index_qk));
  HEARTH_RETURN_IF_ERROR(
      binder.Vector(p + "indexer.q_layernorm", 1, a.indexer_head_dim, out.index_q_norm));
  return binder.Vector(p + "indexer.k_layernorm", 1, a.indexer_head_dim, out.index_k_norm);
}

absl::Status BindMoe(Binder& binder, const ModelGeometry& g, MoeWeights& out) {
  const uint32_t w = g.moe.shared_width;
  const std::string p = "mlp.";
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "gate", g.moe.expert_count, g.hidden, out.router));
  HEARTH_RETURN_IF_ERROR(
      binder.Matrix(p + "shared_expert.gate_proj", w, g.hidden, out.shared_gate));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "shared_expert.up_proj", w, g.hidden, out.shared_up));
  HEARTH_RETURN_IF_ERROR(
      binder.Matrix(p + "shared_expert.down_proj", g.hidden, w, out.shared_down));
  return binder.Matrix(p + "shared_expert_gate", 1, g.hidden, out.shared_expert_gate);
}

absl::Status BindNgram(Binder& binder, const ModelGeometry& g, NgramWeights& out) {
  const uint32_t d = g.stream_dim();
  const std::string p = "ple.";
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "key_proj", d, g.ngram.embed_dim(), out.key));
  HEARTH_RETURN_IF_ERROR(binder.Matrix(p + "value_proj", g.hidden, g.ngram.embed_dim(), out.value));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "norm_key", 1, d, out.norm_key));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "norm_query", 1, d, out.norm_query));
  HEARTH_RETURN_IF_ERROR(binder.Vector(p + "norm_conv", 1, d, out.norm_conv));
  return binder.Vector(p + "conv1d", g.ngram.conv_taps, d, out.conv);
}

absl::Status BindLayer(Binder& binder, const std::string& prefix, const ModelGeometry& g,
                       LayerWeights& out) {
  binder.set_prefix(prefix);
  HEARTH_RETURN_IF_ERROR(
      BindHyperConnection(binder, "attn_hyper_connection", g, true, out.mixer_hc));
  HEARTH_RETURN_IF_ERROR(BindHyperConnection(binder, "mlp_hyper_connection", g, true, out.moe_hc));
  HEARTH_RETURN_IF_ERROR(out.mixer == MixerKind::kGdn ? BindGdn(binder, g, out.gdn)
                                                      : BindQsa(binder, g, out.qsa));
  return BindMoe(binder, g, out.moe);
}

bool DecodesToF32(const TensorInfo& info, Q8Handling q8) {
  return info.format == MatrixFormat::kQ8 && q8 == Q8Handling::kDecodeToF32;
}

uint64_t BytesInMemory(const TensorInfo& info, Q8Handling q8) {
  return AlignUp(
      DecodesToF32(info, q8) ? MatrixBytes(MatrixFormat::kF32, info.rows, info.cols) : info.bytes,
      kTensorAlignBytes);
}

absl::Status LoadFile(const TensorFile& file, Q8Handling q8, std::span<std::byte>& arena,
                      Binder& binder) {
  std::vector<std::byte> scratch;
  for (const TensorInfo& info : file.tensors()) {
    const uint64_t bytes = BytesInMemory(info, q8);
    HEARTH_CHECK(bytes <= arena.size());
    MatrixView view{.format = info.format, .rows = info.rows, .cols = info.cols};
    if (DecodesToF32(info, q8)) {
      scratch.resize(info.bytes);
      HEARTH_RETURN_IF_ERROR(file.Read(info, scratch));
      MatrixView source = view;
      source.data = scratch;
      view.format = MatrixFormat::kF32;
      view.data = arena.first(MatrixBytes(MatrixFormat::kF32, info.rows, info.cols));
      DecodeQ8Matrix(source,
                     {reinterpret_cast<float*>(arena.data()), size_t{info.rows} * info.cols});
    } else {
      HEARTH_RETURN_IF_ERROR(file.Read(info, arena.first(info.bytes)));
      view.data = arena.first(info.bytes);
    }
    binder.Add(info.name, view);
    arena = arena.subspan(bytes);
  }
  return absl::OkStatus();
}

}  // namespace

void DecodeQ8Matrix(const MatrixView& q8, std::span<float> out) {
  HEARTH_CHECK(q8.format == MatrixFormat::kQ8 && out.size() == size_t{q8.rows} * q8.cols);
  const uint32_t blocks = q8.cols / kQ8BlockValues;
  for (uint32_t row = 0; row < q8.rows; ++row) {
    const std::byte* band = q8.data.data() + (row / kBandRows) * Q8BandBytes(q8.cols);
    const uint32_t lane = row % kBandRows;
    const std::byte* scales = band + size_t{blocks} * kQ8BlockValues * kBandRows;
    for (uint32_t k = 0; k < q8.cols; ++k) {
      const auto scale =
          Load<uint16_t>(scales + (size_t{k / kQ8BlockValues} * kBandRows + lane) * 2);
      const auto code = static_cast<int>(band[size_t{k / 4} * 64 + lane * 4 + k % 4]);
      out[size_t{row} * q8.cols + k] = static_cast<float>(code - 128) * DecodeFp16(scale);
    }
  }
}

absl::StatusOr<ModelWeights> ModelWeights::Load(const Pack& pack, Q8Handling q8) {
  ModelWeights w;
  w.geometry = pack.manifest.geometry;
  const ModelGeometry& g = w.geometry;
  uint64_t bytes = 0;
  for (const TensorInfo& info : pack.dense.tensors()) bytes += BytesInMemory(info, q8);
  if (pack.mtp) {
    for (const TensorInfo& info : pack.mtp->tensors()) bytes += BytesInMemory(info, q8);
  }
  HEARTH_ASSIGN_OR_RETURN(w.arena_, AnonymousMapping::Create(bytes));
  std::span<std::byte> rest = w.arena_.data();
  Binder binder("");
  HEARTH_RETURN_IF_ERROR(LoadFile(pack.dense, q8, rest, binder));
  if (pack.mtp) HEARTH_RETURN_IF_ERROR(LoadFile(*pack.mtp, q8, rest, binder));

  HEARTH_RETURN_IF_ERROR(binder.Matrix("embed_tokens", g.vocab_count, g.hidden, w.embed_tokens));
  HEARTH_RETURN_IF_ERROR(binder.Matrix("lm_head", g.vocab_count, g.hidden, w.lm_head));
  HEARTH_RETURN_IF_ERROR(
      BindHyperConnection(binder, "hyper_connection_mixer", g, false, w.final_mixer));
  w.layers.resize(g.layer_count());
  for (uint32_t i = 0; i < g.layer_count(); ++i) {
    LayerWeights& layer = w.layers[i];
    layer.mixer = g.layers[i];
    HEARTH_RETURN_IF_ERROR(BindLayer(binder, absl::StrCat("layers.", i, "."), g, layer));
    if (g.ngram.row_count != 0 && i == g.ngram.layer) {
      HEARTH_RETURN_IF_ERROR(BindNgram(binder, g, layer.ngram.emplace()));
    }
  }
  if (g.has_mtp) {
    MtpWeights& mtp = w.mtp.emplace();
    mtp.layer.mixer = MixerKind::kQsa;
    HEARTH_RETURN_IF_ERROR(BindLayer(binder, "mtp.layers.0.", g, mtp.layer));
    binder.set_prefix("mtp.");
    HEARTH_RETURN_IF_ERROR(binder.Vector("pre_fc_norm_embedding", 1, g.hidden, mtp.norm_embedding));
    HEARTH_RETURN_IF_ERROR(binder.Vector("pre_fc_norm_hidden", 1, g.stream_dim(), mtp.norm_hidden));
    HEARTH_RETURN_IF_ERROR(binder.Matrix("fc_embedding", g.hidden, g.hidden, mtp.fc_embedding));
    HEARTH_RETURN_IF_ERROR(binder.Matrix("fc_hidden", g.hidden, g.hidden, mtp.fc_hidden));
    HEARTH_RETURN_IF_ERROR(
        BindHyperConnection(binder, "hyper_connection_mixer", g, false, mtp.mixer));
  }
  HEARTH_RETURN_IF_ERROR(binder.NothingLeft());
  for (const TensorInfo& info : pack.dense.tensors()) {
    if (info.name != "embed_tokens") w.bytes_per_pass_ += BytesInMemory(info, q8);
    if (info.name == "lm_head") w.draft_bytes_per_pass_ += BytesInMemory(info, q8);
  }
  if (pack.mtp) {
    for (const TensorInfo& info : pack.mtp->tensors()) {
      w.draft_bytes_per_pass_ += BytesInMemory(info, q8);
    }
  }
  return w;
}

}  // namespace hearth
