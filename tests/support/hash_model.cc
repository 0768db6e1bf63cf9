#include "tests/support/hash_model.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "tests/support/tiny_checkpoint.h"

namespace hearth {
namespace {

constexpr uint32_t kExpertCount = 32;

uint64_t NameHash(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

double Centred(uint64_t name_hash, uint64_t k) {
  return 2.0 * (static_cast<double>(SplitMix64(name_hash + k) >> 11) * 0x1p-53) - 1.0;
}

// The checkpoint's own name of a tensor that the pack calls `name`.
std::string FullName(std::string_view name) {
  const bool bare = name.ends_with("A_log") || name.ends_with("dt_bias");
  const bool top = name.starts_with("mtp.") || name == "lm_head";
  return absl::StrCat(top ? "" : "model.", ToAbsl(name), bare ? "" : ".weight");
}

bool IsNorm(std::string_view name) {
  for (const std::string_view part : {"hc_norm", "q_norm", "k_norm", "q_layernorm", "k_layernorm",
                                      "norm_key", "norm_query", "norm_conv", "pre_fc_norm"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

float ValueOf(std::string_view name, uint64_t name_hash, uint64_t k, uint64_t cols) {
  const double u = Centred(name_hash, k);
  double v = u * std::sqrt(3.0 / static_cast<double>(cols));
  if (name.ends_with("linear_attn.norm")) v = 1.0 + 0.1 * u;
  if (IsNorm(name)) v = 0.1 * u;
  if (name.ends_with("conv1d")) v = 0.5 * u;
  if (name == "embed_tokens" || name.ends_with("dt_bias")) v = u;
  if (name.ends_with("A_log")) v = std::log(1.0 + 7.5 * (u + 1.0));
  return static_cast<float>(v);
}

ModelGeometry Geometry() {
  ModelGeometry g;
  g.vocab_count = 512;
  g.hidden = 64;
  g.layers = {MixerKind::kGdn, MixerKind::kGdn, MixerKind::kGdn, MixerKind::kQsa};
  g.stream_count = 4;
  g.hc_rank = 8;
  g.norm_epsilon = 1e-6f;
  g.context_tokens_max = 256;
  g.attention = {.head_count = 6,
                 .kv_head_count = 2,
                 .head_dim = 32,
                 .rotary_dim = 8,
                 .rope_theta = 1e4,
                 .indexer_head_count = 2,
                 .indexer_head_dim = 16,
                 .block_tokens = 4,
                 .block_count_max = 4};
  g.gdn = {.key_head_count = 2,
           .value_head_count = 6,
           .key_head_dim = 16,
           .value_head_dim = 16,
           .conv_taps = 4,
           .output_gate = OutputGate::kSigmoid};
  g.moe = {.expert_count = kExpertCount,
           .experts_per_token = 4,
           .expert_width = 32,
           .shared_width = 32,
           .renormalise = true};
  g.ngram = {.layer = 1,
             .ngram_size = 3,
             .heads_per_ngram = 8,
             .row_dim = 4,
             .conv_taps = 4,
             .eos_token = 2,
             .row_count = 16896,
             .multipliers = {4295158889763781ull, 17440218147737327ull, 1270917961434445ull},
             .head_rows = {1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069,
                           1087, 1091, 1093, 1097},
             .head_offsets = {}};
  uint64_t offset = 0;
  for (const uint64_t rows : g.ngram.head_rows) {
    g.ngram.head_offsets.push_back(offset);
    offset += rows;
  }
  g.has_mtp = true;
  g.mtp_rope_theta = 1e4;
  g.stop_tokens = {2};
  return g;
}

}  // namespace

HashModel::HashModel() : geometry_(Geometry()) {
  const ModelGeometry& g = geometry_;
  dense_.push_back({"embed_tokens", g.vocab_count, g.hidden, true});
  dense_.push_back({"lm_head", g.vocab_count, g.hidden, true});
  AddHyperConnection("hyper_connection_mixer", false);
  for (uint32_t i = 0; i < g.layer_count(); ++i) {
    AddLayer(absl::StrCat("layers.", i, "."), g.layers[i] == MixerKind::kQsa);
  }
  const uint64_t d = g.stream_dim();
  const std::string ple = absl::StrCat("layers.", g.ngram.layer, ".ple.");
  dense_.push_back({ple + "key_proj", d, g.ngram.embed_dim(), true});
  dense_.push_back({ple + "value_proj", g.hidden, g.ngram.embed_dim(), true});
  for (const char* norm : {"norm_key", "norm_query", "norm_conv"}) {
    dense_.push_back({ple + norm, 1, d, true});
  }
  dense_.push_back({ple + "conv1d", d, g.ngram.conv_taps, true});
  AddLayer("mtp.layers.0.", true);
  AddHyperConnection("mtp.hyper_connection_mixer", false);
  dense_.push_back({"mtp.pre_fc_norm_embedding", 1, g.hidden, true});
  dense_.push_back({"mtp.pre_fc_norm_hidden", 1, d, true});
  dense_.push_back({"mtp.fc_embedding", g.hidden, g.hidden, true});
  dense_.push_back({"mtp.fc_hidden", g.hidden, g.hidden, true});
  ngram_ = {.format = NgramRowFormat::kF32,
            .row_count = g.ngram.row_count,
            .row_dim = g.ngram.row_dim,
            .row_bytes = uint64_t{g.ngram.row_dim} * 4,
            .scale = 1};
}

void HashModel::AddHyperConnection(const std::string& prefix, bool inject) {
  const uint64_t d = geometry_.stream_dim();
  dense_.push_back({prefix + ".hc_norm", 1, d, true});
  dense_.push_back({prefix + ".input_mix_weight_down", geometry_.hc_rank, d, true});
  dense_.push_back({prefix + ".input_mix_weight_up", d, geometry_.hc_rank, true});
  if (inject) dense_.push_back({prefix + ".block_inject_weight", geometry_.stream_count, d, true});
}

void HashModel::AddLayer(const std::string& prefix, bool attention) {
  const ModelGeometry& g = geometry_;
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t cols) {
    dense_.push_back({prefix + name, rows, cols, true});
  };
  AddHyperConnection(prefix + "attn_hyper_connection", true);
  AddHyperConnection(prefix + "mlp_hyper_connection", true);
  if (attention) {
    const AttentionGeometry& a = g.attention;
    add("self_attn.q_proj", uint64_t{a.head_count} * 2 * a.head_dim, g.hidden);
    add("self_attn.k_proj", uint64_t{a.kv_head_count} * a.head_dim, g.hidden);
    add("self_attn.v_proj", uint64_t{a.kv_head_count} * a.head_dim, g.hidden);
    add("self_attn.o_proj", g.hidden, uint64_t{a.head_count} * a.head_dim);
    add("self_attn.q_norm", 1, a.head_dim);
    add("self_attn.k_norm", 1, a.head_dim);
    add("self_attn.indexer.index_qk_proj", uint64_t{a.indexer_head_count + 1} * a.indexer_head_dim,
        g.hidden);
    add("self_attn.indexer.q_layernorm", 1, a.indexer_head_dim);
    add("self_attn.indexer.k_layernorm", 1, a.indexer_head_dim);
  } else {
    const GdnGeometry& n = g.gdn;
    add("linear_attn.in_proj_qkv", n.conv_channels(), g.hidden);
    add("linear_attn.in_proj_z", n.value_dim(), g.hidden);
    add("linear_attn.in_proj_b", n.value_head_count, g.hidden);
    add("linear_attn.in_proj_a", n.value_head_count, g.hidden);
    add("linear_attn.out_proj", g.hidden, n.value_dim());
    add("linear_attn.conv1d", n.conv_channels(), n.conv_taps);
    add("linear_attn.A_log", 1, n.value_head_count);
    add("linear_attn.dt_bias", 1, n.value_head_count);
    add("linear_attn.norm", 1, n.value_head_dim);
  }
  add("mlp.gate", g.moe.expert_count, g.hidden);
  add("mlp.shared_expert.gate_proj", g.moe.shared_width, g.hidden);
  add("mlp.shared_expert.up_proj", g.moe.shared_width, g.hidden);
  add("mlp.shared_expert.down_proj", g.hidden, g.moe.shared_width);
  add("mlp.shared_expert_gate", 1, g.hidden);
}

absl::Status HashModel::ReadDenseRows(std::string_view name, uint64_t row_begin, uint64_t row_count,
                                      std::span<float> out) const {
  for (const DenseInfo& info : dense_) {
    if (info.name != name) continue;
    HEARTH_CHECK(out.size() == row_count * info.cols);
    const uint64_t hash = NameHash(FullName(name));
    for (uint64_t i = 0; i < out.size(); ++i) {
      out[i] = ValueOf(name, hash, row_begin * info.cols + i, info.cols);
    }
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no tensor '", ToAbsl(name), "'"));
}

absl::Status HashModel::ReadExpert(ExpertKey key, SourceExpert& expert) const {
  const ModelGeometry& g = geometry_;
  const std::string prefix = key.layer.value == g.layer_count()
                                 ? "mtp.layers.0.mlp.experts."
                                 : absl::StrCat("model.layers.", key.layer.value, ".mlp.experts.");
  expert.format = ExpertFormat::kF32;
  const auto fill = [&](SourceMatrix& m, const std::string& tensor, uint64_t first, uint32_t rows,
                        uint32_t cols) {
    const uint64_t hash = NameHash(prefix + tensor);
    m.rows = rows;
    m.cols = cols;
    m.values.resize(size_t{rows} * cols);
    for (size_t i = 0; i < m.values.size(); ++i) {
      m.values[i] = ValueOf("", hash, first + i, cols);
    }
  };
  const uint32_t w = g.moe.expert_width;
  const uint64_t one = uint64_t{w} * g.hidden;
  fill(expert.gate, "gate_up_proj", key.expert.value * 2 * one, w, g.hidden);
  fill(expert.up, "gate_up_proj", (key.expert.value * 2 + 1) * one, w, g.hidden);
  fill(expert.down, "down_proj", key.expert.value * one, g.hidden, w);
  return absl::OkStatus();
}

absl::Status HashModel::ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                                      std::span<std::byte> out) const {
  const uint64_t hash = NameHash("model.layers.1.ple.ple_embedding.ngram_embedding.weight");
  HEARTH_CHECK(out.size() == row_count * ngram_.row_bytes);
  for (uint64_t i = 0; i < row_count * ngram_.row_dim; ++i) {
    const auto value = static_cast<float>(Centred(hash, row_begin * ngram_.row_dim + i));
    std::memcpy(out.data() + i * 4, &value, 4);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HashModel::ReadText(std::string_view name) const {
  if (name == "tokenizer.json") return TinyTokenizerJson();
  return absl::NotFoundError(absl::StrCat("no file '", ToAbsl(name), "'"));
}

}  // namespace hearth
