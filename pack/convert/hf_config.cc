#include "pack/convert/hf_config.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "pack/convert/config_object.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

// Bounds that keep this parser's own loops and allocations small; Validate() has the real ones.
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kNgramSizeMax = 8;
constexpr uint32_t kHeadsPerNgramMax = 64;
constexpr size_t kStopTokensMax = 64;

// Every key is missing in an object that is missing.
Json ObjectOrNull(const Json* value) {
  return value != nullptr && value->is_object() ? *value : Json();
}

absl::StatusOr<Json> ParseObject(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  return json;
}

void RefuseOtherArchitectures(ConfigObject& text) {
  text.Expect("hidden_act", "silu");
  text.Expect("attention_bias", false);
  text.Expect("attn_output_gate", true);
  text.Expect("indexer_kv_heads", 1);
  text.Expect("scoring_func", "softmax");
  text.Expect("routed_scaling_factor", 1);
  text.Expect("n_group", 1);
  text.Expect("topk_group", 1);
  text.Expect("mtp_use_dedicated_embeddings", false);
  if (text.Find("hidden_act") == nullptr) (void)text.Text("hidden_act");
}

std::vector<MixerKind> ReadLayers(ConfigObject& text) {
  std::vector<MixerKind> layers;
  const uint32_t count = text.Count("num_hidden_layers");
  if (count > kLayersMax) {
    text.Refuse("num_hidden_layers", absl::StrCat("up to ", kLayersMax));
    return layers;
  }
  const Json* types = text.Find("layer_types");
  if (types == nullptr) {
    const uint32_t interval = text.Count("full_attention_interval");
    for (uint32_t i = 0; i < count && interval > 0; ++i) {
      layers.push_back((i + 1) % interval == 0 ? MixerKind::kQsa : MixerKind::kGdn);
    }
    return layers;
  }
  if (!types->is_array() || types->size() != count) {
    text.Refuse("layer_types", absl::StrCat("an array of num_hidden_layers (", count, ") names"));
    return layers;
  }
  for (const Json& type : *types) {
    if (type == "linear_attention") {
      layers.push_back(MixerKind::kGdn);
    } else if (type == "full_attention" || type == "qwen_sparse_attention" ||
               type == "deepseek_sparse_attention") {
      layers.push_back(MixerKind::kQsa);
    } else {
      text.Refuse("layer_types", "linear_attention, full_attention");
    }
  }
  return layers;
}

// Newer files keep rotary parameters in rope_parameters, older ones beside it.
absl::Status ReadRope(ConfigObject& text, AttentionGeometry& attention) {
  const Json rope_json = ObjectOrNull(text.Find("rope_parameters"));
  const Json scaling_json = ObjectOrNull(text.Find("rope_scaling"));
  ConfigObject rope(rope_json, absl::StrCat(text.where(), "rope_parameters."));
  rope.Expect("rope_type", "default");
  rope.Expect("type", "default");
  ConfigObject scaling(scaling_json, absl::StrCat(text.where(), "rope_scaling."));
  scaling.Expect("rope_type", "default");
  scaling.Expect("type", "default");
  const auto read = [&](const char* key) {
    return rope.Find(key) != nullptr ? rope.Real(key) : text.Real(key);
  };
  attention.rope_theta = read("rope_theta");
  const double factor = read("partial_rotary_factor");
  HEARTH_RETURN_IF_ERROR(rope.status());
  HEARTH_RETURN_IF_ERROR(scaling.status());
  if (!(factor > 0 && factor <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(text.where(), "partial_rotary_factor is ",
                                                   factor, ", accepted: above 0, up to 1"));
  }
  attention.rotary_dim = static_cast<uint32_t>(std::floor(attention.head_dim * factor));
  return absl::OkStatus();
}

absl::Status ReadAttention(ConfigObject& text, AttentionGeometry& attention) {
  attention.head_count = text.Count("num_attention_heads");
  attention.kv_head_count = text.Count("num_key_value_heads");
  attention.head_dim = text.Count("head_dim");
  attention.indexer_head_count = text.Count("indexer_n_heads");
  attention.indexer_head_dim = text.Count("indexer_head_dim");
  attention.block_tokens = text.Count("indexer_compress_ratio");
  const uint32_t budget = text.Count("indexer_budget");
  if (attention.block_tokens == 0 || budget % attention.block_tokens != 0) {
    text.Refuse("indexer_budget", "a multiple of indexer_compress_ratio");
  } else {
    attention.block_count_max = budget / attention.block_tokens;
  }
  return ReadRope(text, attention);
}

void ReadGdn(ConfigObject& text, GdnGeometry& gdn) {
  gdn.key_head_count = text.Count("linear_num_key_heads");
  gdn.value_head_count = text.Count("linear_num_value_heads");
  gdn.key_head_dim = text.Count("linear_key_head_dim");
  gdn.value_head_dim = text.Count("linear_value_head_dim");
  gdn.conv_taps = text.Count("linear_conv_kernel_dim");
  const std::string gate = text.Text("output_gate_type");
  if (gate == "sigmoid") {
    gdn.output_gate = OutputGate::kSigmoid;
  } else if (gate == "silu" || gate == "swish") {
    gdn.output_gate = OutputGate::kSilu;
  } else {
    text.Refuse("output_gate_type", "sigmoid, silu");
  }
}

void ReadMoe(ConfigObject& text, MoeGeometry& moe) {
  moe.expert_count = text.Count("num_experts");
  moe.experts_per_token = text.Count("num_experts_per_tok");
  moe.expert_width = text.Count("moe_intermediate_size");
  moe.shared_width = text.Count("shared_expert_intermediate_size");
  moe.renormalise = text.Flag("norm_topk_prob", true);
}

// ple_layer_ids counts layers from 1.
uint32_t ReadNgramLayer(ConfigObject& text, const Json& ids) {
  if (ids.size() != 1 || !ids[0].is_number_unsigned() || ids[0].get<uint64_t>() < 1 ||
      ids[0].get<uint64_t>() > kLayersMax) {
    text.Refuse("ple_layer_ids", "an array of one layer, counted from 1");
    return 0;
  }
  return ids[0].get<uint32_t>() - 1;
}

void ReadNgram(ConfigObject& text, HfConfig& config) {
  const Json* ids = text.Find("ple_layer_ids");
  if (ids == nullptr || (ids->is_array() && ids->empty())) return;
  if (!ids->is_array()) return text.Refuse("ple_layer_ids", "an array of one layer");
  config.has_ngram = true;
  NgramGeometry& ngram = config.geometry.ngram;
  ngram.layer = ReadNgramLayer(text, *ids);
  ngram.ngram_size = text.Count("ngram_size");
  ngram.heads_per_ngram = text.Count("heads_per_ngram");
  if (ngram.ngram_size < 2 || ngram.ngram_size > kNgramSizeMax) {
    return text.Refuse("ngram_size", absl::StrCat("2 to ", kNgramSizeMax));
  }
  if (ngram.heads_per_ngram < 1 || ngram.heads_per_ngram > kHeadsPerNgramMax) {
    return text.Refuse("heads_per_ngram", absl::StrCat("1 to ", kHeadsPerNgramMax));
  }
  const uint32_t embed_dim = text.Count("ple_embed_dim");
  if (embed_dim == 0 || embed_dim % ngram.head_count() != 0) {
    return text.Refuse("ple_embed_dim", absl::StrCat("a multiple of ", ngram.head_count(),
                                                     ", the number of n-gram heads"));
  }
  ngram.row_dim = embed_dim / ngram.head_count();
  ngram.conv_taps = text.Count("ple_conv_kernel_size");
  const uint32_t eos = text.Count("eos_token_id");
  if (eos > INT32_MAX) return text.Refuse("eos_token_id", "a token");
  ngram.eos_token = static_cast<int32_t>(eos);
  config.ngram_derivation.vocab_base = text.Wide("ngram_vocab_size_base", 0);
  config.ngram_derivation.row_multiple = text.Wide("make_ngram_vocab_size_divisible_by", 1);
  config.ngram_derivation.seed = text.Wide("seed", 1234);
  config.ngram_part_count = text.Count("split_ngram_parts", 0);
}

absl::Status ReadMtp(ConfigObject& text, ModelGeometry& geometry) {
  const Json mtp_json = ObjectOrNull(text.Find("mtp"));
  ConfigObject mtp(mtp_json, absl::StrCat(text.where(), "mtp."));
  const uint32_t count = text.Count("mtp_num_hidden_layers", mtp.Count("num_hidden_layers", 0));
  if (count > 1) text.Refuse("mtp_num_hidden_layers", "0, 1");
  geometry.has_mtp = count == 1;
  geometry.mtp_rope_theta = mtp.Real("rope_theta", geometry.attention.rope_theta);
  const Json* types = mtp.Find("layer_types");
  if (types != nullptr && *types != Json::array({"full_attention"}) &&
      *types != Json::array({"qwen_sparse_attention"})) {
    mtp.Refuse("layer_types", "[\"full_attention\"]");
  }
  return mtp.status();
}

// One token or an array of them.
std::vector<int32_t> ReadTokens(ConfigObject& from, const char* key) {
  std::vector<int32_t> tokens;
  const Json* value = from.Find(key);
  if (value == nullptr) return tokens;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& token : list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX ||
        tokens.size() == kStopTokensMax) {
      from.Refuse(key, absl::StrCat("a token or an array of up to ", kStopTokensMax, " tokens"));
      break;
    }
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

absl::Status ReadStopTokens(const HfConfigTexts& texts, ConfigObject& text, ConfigObject& root,
                            ModelGeometry& geometry) {
  if (!texts.generation.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const Json generation,
                            ParseObject(texts.generation, texts.generation_path));
    ConfigObject object(generation, absl::StrCat(texts.generation_path, ": "));
    geometry.stop_tokens = ReadTokens(object, "eos_token_id");
    HEARTH_RETURN_IF_ERROR(object.status());
  }
  if (geometry.stop_tokens.empty()) geometry.stop_tokens = ReadTokens(text, "eos_token_id");
  if (geometry.stop_tokens.empty()) geometry.stop_tokens = ReadTokens(root, "eos_token_id");
  HEARTH_RETURN_IF_ERROR(text.status());
  return root.status();
}

absl::Status ReadQuant(const HfConfigTexts& texts, ConfigObject& root, ConfigObject& text,
                       QuantConfig& quant) {
  for (const ConfigObject* from : {&root, &text}) {
    const Json* description = from->Find("quantization_config");
    if (description == nullptr) continue;
    HEARTH_RETURN_IF_ERROR(
        quant.Add(*description, absl::StrCat(texts.config_path, ": quantization_config")));
    break;
  }
  if (texts.quant.empty()) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseObject(texts.quant, texts.quant_path));
  const auto inner = json.find("quantization");
  return inner == json.end() ? absl::OkStatus() : quant.Add(*inner, texts.quant_path);
}

absl::Status ReadText(ConfigObject& text, HfConfig& config) {
  ModelGeometry& geometry = config.geometry;
  RefuseOtherArchitectures(text);
  geometry.vocab_count = text.Count("vocab_size");
  geometry.hidden = text.Count("hidden_size");
  geometry.layers = ReadLayers(text);
  geometry.stream_count = text.Count("hc_count");
  geometry.hc_rank = text.Count("hc_lowrank");
  geometry.norm_epsilon = static_cast<float>(text.Real("rms_norm_eps"));
  geometry.context_tokens_max = text.Count("max_position_embeddings");
  HEARTH_RETURN_IF_ERROR(ReadAttention(text, geometry.attention));
  ReadGdn(text, geometry.gdn);
  ReadMoe(text, geometry.moe);
  ReadNgram(text, config);
  HEARTH_RETURN_IF_ERROR(ReadMtp(text, geometry));
  return text.status();
}

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(const HfConfigTexts& texts) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseObject(texts.config, texts.config_path));
  ConfigObject root(json, absl::StrCat(texts.config_path, ": "));
  const Json* nested = root.Find("text_config");
  const bool is_nested = nested != nullptr && nested->is_object();
  ConfigObject text(is_nested ? *nested : json,
                    absl::StrCat(texts.config_path, is_nested ? ": text_config." : ": "));
  if (root.Text("model_type") != (is_nested ? "qwen4_exp" : "qwen4_exp_text")) {
    root.Refuse("model_type", is_nested ? "qwen4_exp" : "qwen4_exp_text");
  }
  HEARTH_RETURN_IF_ERROR(root.status());
  text.Expect("model_type", "qwen4_exp_text");
  HfConfig config;
  HEARTH_RETURN_IF_ERROR(text.status());
  HEARTH_RETURN_IF_ERROR(ReadText(text, config));
  config.tie_word_embeddings =
      root.Flag("tie_word_embeddings", text.Flag("tie_word_embeddings", false));
  HEARTH_RETURN_IF_ERROR(ReadStopTokens(texts, text, root, config.geometry));
  HEARTH_RETURN_IF_ERROR(ReadQuant(texts, root, text, config.quant));
  HEARTH_RETURN_IF_ERROR(text.status());
  return config;
}

}  // namespace hearth
