#include "tests/support/tiny_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_codecs.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

// Attention and GDN heads; small, with the real model's ratios of rotary to head and key to value
// heads.
constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 32;
constexpr uint32_t kIndexHeads = 2, kIndexDim = 16;
constexpr uint32_t kKeyHeads = 2, kValueHeads = 6, kGdnDim = 16;
constexpr uint32_t kStreams = 4, kRank = 8, kTaps = 4;
constexpr uint64_t kHeadRows[4] = {101, 103, 107, 109};  // primes from 101
constexpr uint64_t kTableRows = 424;                     // 420 padded to a multiple of 8
constexpr uint32_t kTableShards = 2;
constexpr uint64_t kNgramSeed = 1234;
constexpr double kTableScale = 0.03125;  // exact in BF16

std::vector<uint64_t> NgramMultipliers(uint64_t vocab_count) {
  const uint64_t half = 0x7FFFFFFFFFFFFFFFull / vocab_count / 2;
  std::vector<uint64_t> multipliers;
  for (uint64_t i = 0; i < 3; ++i) {
    multipliers.push_back(2 * (SplitMix64(kNgramSeed + 0x9E3779B97F4A7C15ull * (i + 1)) % half) +
                          1);
  }
  return multipliers;
}

Json TextConfig(const TinyOptions& o) {
  Json layers = Json::array();
  for (uint32_t i = 0; i < o.layer_count; ++i) {
    layers.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  }
  Json c = {
      {"model_type", "qwen4_exp_text"},
      {"vocab_size", o.vocab_count},
      {"hidden_size", o.hidden},
      {"num_hidden_layers", o.layer_count},
      {"layer_types", layers},
      {"num_attention_heads", kHeads},
      {"num_key_value_heads", kKvHeads},
      {"head_dim", kHeadDim},
      {"attention_bias", false},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}},
      {"max_position_embeddings", 4096},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"output_gate_type", "sigmoid"},
      {"linear_num_key_heads", kKeyHeads},
      {"linear_key_head_dim", kGdnDim},
      {"linear_num_value_heads", kValueHeads},
      {"linear_value_head_dim", kGdnDim},
      {"linear_conv_kernel_dim", kTaps},
      {"indexer_n_heads", kIndexHeads},
      {"indexer_kv_heads", 1},
      {"indexer_head_dim", kIndexDim},
      {"indexer_budget", 16},
      {"indexer_compress_ratio", 4},
      {"hc_count", kStreams},
      {"hc_lowrank", kRank},
      {"num_experts", o.expert_count},
      {"num_experts_per_tok", o.experts_per_token},
      {"moe_intermediate_size", o.width},
      {"shared_expert_intermediate_size", o.width},
      {"eos_token_id", 256},
      {"mtp_num_hidden_layers", o.mtp == TinyMtp::kNone ? 0 : 1},
      {"mtp_use_dedicated_embeddings", false},
      {"mtp", {{"layer_types", {"full_attention"}}, {"rope_theta", 20000.0}}},
  };
  if (o.ngram != TinyNgram::kNone) {
    c["ple_layer_ids"] = {2};
    c["ple_embed_dim"] = o.hidden;
    c["ple_conv_kernel_size"] = kTaps;
    c["ngram_size"] = 3;
    c["heads_per_ngram"] = 2;
    c["ngram_vocab_size_base"] = 100;
    c["make_ngram_vocab_size_divisible_by"] = 8;
    c["split_ngram_parts"] = kTableShards;
    c["seed"] = kNgramSeed;
  }
  return c;
}

Json QuantizationConfig(const TinyOptions& o) {
  const Json excluded = {
      "lm_head", "*embed_tokens", "*shared_expert*", "*hyper_connection*", "*mlp.gate",
      "*ple*",   "mtp*"};
  switch (o.experts) {
    case TinyExperts::kFp8:
    case TinyExperts::kFp8F32Scales:
      return {{"quant_method", "fp8"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}},
              {"modules_to_not_convert", {"lm_head"}}};
    case TinyExperts::kModelOptNvfp4: {
      Json ignored = excluded;
      ignored.push_back("*linear_attn*");
      ignored.push_back("*self_attn*");
      return {{"quant_method", "modelopt"},
              {"quant_algo", "NVFP4"},
              {"group_size", 16},
              {"ignore", ignored}};
    }
    case TinyExperts::kCompressedTensorsNvfp4:
      return {{"quant_method", "compressed-tensors"},
              {"format", "nvfp4-pack-quantized"},
              {"config_groups",
               {{"group_0",
                 {{"targets", {"Linear"}},
                  {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}}},
              {"ignore", {"lm_head", "re:.*self_attn.*", "re:.*linear_attn.*"}}};
    case TinyExperts::kModelOptNvfp4Csf:
      return {{"quant_method", "modelopt"},
              {"quant_algo", "MIXED_PRECISION"},
              {"weight_scale_encoding", "csf"}};
    default:
      return nullptr;
  }
}

}  // namespace

TinyOptions TinyOptions::For(TinyExperts experts) {
  TinyOptions o;
  o.experts = experts;
  switch (experts) {
    case TinyExperts::kBf16Packed:
    case TinyExperts::kBf16Separate:
      break;
    case TinyExperts::kF32Packed:
      o.dense = TinyDense::kF32, o.ngram = TinyNgram::kF32, o.mtp = TinyMtp::kF32Packed;
      break;
    case TinyExperts::kFp8:
    case TinyExperts::kFp8F32Scales:
      o.ngram = TinyNgram::kFp8, o.mtp = TinyMtp::kFp8;
      break;
    case TinyExperts::kModelOptNvfp4:
      o.ngram = TinyNgram::kFp8;
      break;
    case TinyExperts::kCompressedTensorsNvfp4:
      break;
    case TinyExperts::kModelOptNvfp4Csf:
      o.dense = TinyDense::kMxfp8, o.ngram = TinyNgram::kNvfp4, o.mtp = TinyMtp::kFp8;
      break;
  }
  return o;
}

TinyCheckpoint::TinyCheckpoint(const TinyOptions& options) : options_(options) {
  AddBf16("embed_tokens", {options_.vocab_count, options_.hidden}, 0, 1);
  for (uint32_t i = 0; i < options_.layer_count; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    AddHyperConnection(layer + "attn_hyper_connection", true);
    AddHyperConnection(layer + "mlp_hyper_connection", true);
    if (i % 4 == 3) {
      AddAttention(layer + "self_attn");
    } else {
      AddGdn(layer + "linear_attn");
    }
    if (i == 1 && options_.ngram != TinyNgram::kNone) AddNgram();
    AddMoe(layer + "mlp");
    AddExperts(LayerId(i), options_.experts);
  }
  AddHyperConnection("hyper_connection_mixer", false);
  AddBf16("lm_head", {options_.vocab_count, options_.hidden}, 0, std::sqrt(3.0 / options_.hidden));
  if (options_.mtp != TinyMtp::kNone) AddMtp();
  if (options_.with_vision_and_buffers) AddDropped();
  AddTexts();
}

std::string TinyCheckpoint::prefix() const {
  return options_.language_model_prefix ? "model.language_model." : "model.";
}

std::string TinyCheckpoint::FullName(const std::string& pack_name) const {
  const bool top = pack_name.starts_with("mtp.") || pack_name.starts_with("lm_head");
  return (top ? "" : prefix()) + pack_name;
}

FixtureTensor& TinyCheckpoint::Find(std::string_view full_name) {
  for (FixtureTensor& t : tensors) {
    if (t.name == full_name) return t;
  }
  ADD_FAILURE() << "the tiny checkpoint has no tensor " << full_name;
  return tensors.front();
}

bool TinyCheckpoint::Has(std::string_view full_name) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const FixtureTensor& t) { return t.name == full_name; });
}

void TinyCheckpoint::Erase(std::string_view full_name) {
  if (std::erase_if(tensors, [&](const FixtureTensor& t) { return t.name == full_name; }) != 1) {
    ADD_FAILURE() << "the tiny checkpoint has no tensor " << full_name;
  }
}

void TinyCheckpoint::SetJson(const std::string& file, const std::string& pointer,
                             std::string_view value_text) {
  Json json = Json::parse(texts[file]);
  json[Json::json_pointer(pointer)] = Json::parse(value_text);
  texts[file] = json.dump(1);
}

void TinyCheckpoint::EraseJson(const std::string& file, const std::string& pointer) {
  Json json = Json::parse(texts[file]);
  const Json::json_pointer at(pointer);
  json[at.parent_pointer()].erase(at.back());
  texts[file] = json.dump(1);
}

uint64_t TinyCheckpoint::ngram_row_count() const {
  return options_.ngram == TinyNgram::kNone ? 0 : kTableRows;
}

const ExpertTruth& TinyCheckpoint::expert(LayerId layer, ExpertId expert) const {
  return experts_.at(ExpertKey{layer, expert});
}

ExpertTruth& TinyCheckpoint::MutableExpert(LayerId layer, ExpertId expert) {
  ExpertTruth& truth = experts_[ExpertKey{layer, expert}];
  truth.hidden = options_.hidden;
  truth.width = options_.width;
  return truth;
}

void TinyCheckpoint::AddBf16(const std::string& pack_name, std::vector<uint64_t> shape,
                             double center, double spread, bool bare_name) {
  Prng prng = TinyStream(options_.seed, pack_name);
  uint64_t count = 1;
  for (const uint64_t d : shape) count *= d;
  std::vector<uint16_t> codes(count);
  std::vector<float> values(count);
  std::vector<double>& truth = dense_[pack_name];
  truth.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const double value = center + spread * TinySigned(prng);
    codes[i] = TinyToBf16(value);
    values[i] = static_cast<float>(value);
    truth[i] = options_.dense == TinyDense::kF32 ? values[i] : TinyBf16(codes[i]);
  }
  const std::string name = FullName(pack_name) + (bare_name ? "" : ".weight");
  tensors.push_back(options_.dense == TinyDense::kF32 ? F32Fixture(name, shape, values)
                                                      : Bf16Fixture(name, shape, codes));
}

void TinyCheckpoint::AddMatrix(const std::string& pack_name, uint64_t rows, uint64_t cols) {
  if (options_.dense == TinyDense::kMxfp8 && cols % 32 == 0) {
    AddMxfp8(pack_name, rows, cols);
  } else {
    AddBf16(pack_name, {rows, cols}, 0, std::sqrt(3.0 / static_cast<double>(cols)));
  }
}

void TinyCheckpoint::AddMxfp8(const std::string& pack_name, uint64_t rows, uint64_t cols) {
  Prng prng = TinyStream(options_.seed, pack_name);
  std::vector<uint8_t> codes(rows * cols);
  std::vector<uint8_t> scales(rows * cols / 32);
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(121 + prng.Below(4));
  std::vector<double>& truth = dense_[pack_name];
  truth.resize(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>((prng.Below(2) << 7) | (0x28 + prng.Below(32)));
    truth[i] = TinyE4m3(codes[i]) * std::ldexp(1.0, scales[i / 32] - 127);
  }
  const std::string name = FullName(pack_name);
  tensors.push_back(BytesFixture(name + ".weight", "F8_E4M3", {rows, cols}, codes));
  tensors.push_back(BytesFixture(name + ".weight_scale", "U8", {rows, cols / 32}, scales));
}

void TinyCheckpoint::AddHyperConnection(const std::string& pack_name, bool with_inject) {
  const uint64_t d = uint64_t{kStreams} * options_.hidden;
  AddBf16(pack_name + ".hc_norm", {d}, 0, 0.1);
  AddBf16(pack_name + ".input_mix_weight_down", {kRank, d}, 0,
          std::sqrt(3.0 / static_cast<double>(d)));
  AddBf16(pack_name + ".input_mix_weight_up", {d, kRank}, 0, std::sqrt(3.0 / kRank));
  if (with_inject) {
    AddBf16(pack_name + ".block_inject_weight", {kStreams, d}, 0,
            std::sqrt(3.0 / static_cast<double>(d)));
  }
}

void TinyCheckpoint::AddAttention(const std::string& pack_name) {
  const uint64_t hidden = options_.hidden;
  AddMatrix(pack_name + ".q_proj", 2 * kHeads * kHeadDim, hidden);
  AddMatrix(pack_name + ".k_proj", kKvHeads * kHeadDim, hidden);
  AddMatrix(pack_name + ".v_proj", kKvHeads * kHeadDim, hidden);
  AddMatrix(pack_name + ".o_proj", hidden, kHeads * kHeadDim);
  AddBf16(pack_name + ".q_norm", {kHeadDim}, 0, 0.1);
  AddBf16(pack_name + ".k_norm", {kHeadDim}, 0, 0.1);
  AddBf16(pack_name + ".indexer.index_qk_proj", {(kIndexHeads + 1) * kIndexDim, hidden}, 0,
          std::sqrt(3.0 / static_cast<double>(hidden)));
  AddBf16(pack_name + ".indexer.q_layernorm", {kIndexDim}, 0, 0.1);
  AddBf16(pack_name + ".indexer.k_layernorm", {kIndexDim}, 0, 0.1);
}

void TinyCheckpoint::AddGdn(const std::string& pack_name) {
  const uint64_t hidden = options_.hidden;
  const uint64_t key_dim = kKeyHeads * kGdnDim, value_dim = kValueHeads * kGdnDim;
  AddMatrix(pack_name + ".in_proj_qkv", 2 * key_dim + value_dim, hidden);
  AddMatrix(pack_name + ".in_proj_z", value_dim, hidden);
  AddBf16(pack_name + ".in_proj_a", {kValueHeads, hidden}, 0, 0.2);
  AddBf16(pack_name + ".in_proj_b", {kValueHeads, hidden}, 0, 0.2);
  AddBf16(pack_name + ".conv1d", {2 * key_dim + value_dim, 1, kTaps}, 0, 0.5);
  AddBf16(pack_name + ".A_log", {kValueHeads}, 1.2, 1, true);
  AddBf16(pack_name + ".dt_bias", {kValueHeads}, 0, 1, true);
  AddBf16(pack_name + ".norm", {kGdnDim}, 1, 0.1);
  AddMatrix(pack_name + ".out_proj", hidden, value_dim);
}

void TinyCheckpoint::AddMoe(const std::string& pack_name) {
  const uint64_t hidden = options_.hidden, width = options_.width;
  const double in = std::sqrt(3.0 / static_cast<double>(hidden));
  AddBf16(pack_name + ".gate", {options_.expert_count, hidden}, 0, in);
  AddBf16(pack_name + ".shared_expert.gate_proj", {width, hidden}, 0, in);
  AddBf16(pack_name + ".shared_expert.up_proj", {width, hidden}, 0, in);
  AddBf16(pack_name + ".shared_expert.down_proj", {hidden, width}, 0,
          std::sqrt(3.0 / static_cast<double>(width)));
  AddBf16(pack_name + ".shared_expert_gate", {1, hidden}, 0, in);
}

void TinyCheckpoint::AddNgram() {
  const std::string ple = "layers.1.ple.";
  const uint64_t hidden = options_.hidden, d = uint64_t{kStreams} * hidden;
  const double in = std::sqrt(3.0 / static_cast<double>(hidden));
  AddBf16(ple + "key_proj", {d, hidden}, 0, in);
  AddBf16(ple + "value_proj", {hidden, hidden}, 0, in);
  AddBf16(ple + "norm_key", {d}, 0, 0.1);
  AddBf16(ple + "norm_query", {d}, 0, 0.1);
  AddBf16(ple + "norm_conv", {d}, 0, 0.1);
  AddBf16(ple + "conv1d", {d, 1, kTaps}, 0, 0.5);
  const std::string embedding = prefix() + ple + "ple_embedding.";
  tensors.push_back(
      I64Fixture(embedding + "layer_multipliers", NgramMultipliers(options_.vocab_count)));
  tensors.push_back(I64Fixture(embedding + "ngram_heads_vocab_sizes", kHeadRows));
  const std::vector<uint64_t> offsets = {0, 101, 204, 311};
  tensors.push_back(I64Fixture(embedding + "ngram_heads_offsets", offsets));
  AddNgramTable(embedding + "ngram_embedding.");
}

void TinyCheckpoint::AddNgramTable(const std::string& table) {
  Prng prng = TinyStream(options_.seed, "ngram");
  const uint64_t dim = ngram_row_dim(), rows = kTableRows / kTableShards;
  const float global = 1.0f / 512;
  for (uint32_t shard = 0; shard < kTableShards; ++shard) {
    const std::string name = table + "shard_" + std::to_string(shard) + ".";
    std::vector<uint16_t> bf16;
    std::vector<float> f32;
    std::vector<uint8_t> bytes, scales;
    for (uint64_t i = 0; i < rows * dim; ++i) {
      const double value = TinySigned(prng);
      const auto e4m3 = static_cast<uint8_t>((prng.Below(2) << 7) | (0x30 + prng.Below(32)));
      const auto e2m1 = static_cast<uint8_t>(prng.Below(16));
      if (options_.ngram == TinyNgram::kBf16) {
        bf16.push_back(TinyToBf16(value));
        ngram_.push_back(TinyBf16(bf16.back()));
      } else if (options_.ngram == TinyNgram::kF32) {
        f32.push_back(static_cast<float>(value));
        ngram_.push_back(f32.back());
      } else if (options_.ngram == TinyNgram::kFp8) {
        bytes.push_back(e4m3);
        ngram_.push_back(TinyE4m3(e4m3) * kTableScale);
      } else {
        if (i % 16 == 0) scales.push_back(static_cast<uint8_t>(0x60 + prng.Below(16)));
        if (i % 2 == 0) bytes.push_back(e2m1);
        if (i % 2 == 1) bytes.back() |= static_cast<uint8_t>(e2m1 << 4);
        ngram_.push_back(TinyE2m1(e2m1) * TinyE4m3(scales.back()) * double{global});
      }
    }
    if (!bf16.empty()) tensors.push_back(Bf16Fixture(name + "weight", {rows, dim}, bf16));
    if (!f32.empty()) tensors.push_back(F32Fixture(name + "weight", {rows, dim}, f32));
    if (options_.ngram == TinyNgram::kFp8) {
      tensors.push_back(BytesFixture(name + "weight", "F8_E4M3", {rows, dim}, bytes));
    }
    if (options_.ngram == TinyNgram::kNvfp4) {
      tensors.push_back(BytesFixture(name + "weight", "U8", {rows, dim / 2}, bytes));
      tensors.push_back(BytesFixture(name + "weight_scale", "F8_E4M3", {rows, dim / 16}, scales));
    }
  }
  if (options_.ngram == TinyNgram::kFp8) {
    const std::vector<uint16_t> scale = {TinyToBf16(kTableScale)};
    tensors.push_back(Bf16Fixture(table + "weight_scale", {1}, scale));
  }
  if (options_.ngram == TinyNgram::kNvfp4) {
    const std::vector<float> scale = {global};
    tensors.push_back(F32Fixture(table + "weight_scale_2", {}, scale));
  }
}

void TinyCheckpoint::AddMtp() {
  const uint64_t hidden = options_.hidden, d = uint64_t{kStreams} * hidden;
  const double in = std::sqrt(3.0 / static_cast<double>(hidden));
  AddBf16("mtp.pre_fc_norm_embedding", {hidden}, 0, 0.1);
  AddBf16("mtp.pre_fc_norm_hidden", {d}, 0, 0.1);
  AddBf16("mtp.fc_embedding", {hidden, hidden}, 0, in);
  AddBf16("mtp.fc_hidden", {hidden, hidden}, 0, in);
  AddHyperConnection("mtp.layers.0.attn_hyper_connection", true);
  AddHyperConnection("mtp.layers.0.mlp_hyper_connection", true);
  AddAttention("mtp.layers.0.self_attn");
  AddMoe("mtp.layers.0.mlp");
  AddHyperConnection("mtp.hyper_connection_mixer", false);
  const TinyExperts kind = options_.mtp == TinyMtp::kFp8         ? TinyExperts::kFp8
                           : options_.mtp == TinyMtp::kF32Packed ? TinyExperts::kF32Packed
                                                                 : TinyExperts::kBf16Packed;
  AddExperts(LayerId(options_.layer_count), kind);
}

void TinyCheckpoint::AddDropped() {
  const std::vector<uint16_t> bf16(8, 0x3F80);
  tensors.push_back(Bf16Fixture("model.visual.patch_embed.proj.weight", {2, 2, 2}, bf16));
  tensors.push_back(Bf16Fixture("model.visual.blocks.0.norm1.weight", {8}, bf16));
  if (options_.ngram != TinyNgram::kNone) {
    const std::vector<uint64_t> lookup(4, 7);
    tensors.push_back(I64Fixture(prefix() + "layers.1.ple.ple_embedding.token_lookup", lookup));
  }
}

void TinyCheckpoint::AddTexts() {
  Json config = {{"architectures", {"Qwen4ExpForConditionalGeneration"}},
                 {"model_type", "qwen4_exp"},
                 {"tie_word_embeddings", false},
                 {"text_config", TextConfig(options_)}};
  const Json quantization = QuantizationConfig(options_);
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  texts["config.json"] = config.dump(1);
  texts["generation_config.json"] = Json{{"eos_token_id", {258, 256}}}.dump(1);
  texts["tokenizer.json"] = TinyTokenizerJson();
  texts["tokenizer_config.json"] = Json{{"tokenizer_class", "Qwen2Tokenizer"}}.dump(1);
  texts["chat_template.jinja"] =
      "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
      "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
  if (options_.experts == TinyExperts::kModelOptNvfp4Csf) {
    Json layers = Json::object();
    for (uint32_t i = 0; i < options_.layer_count; ++i) {
      const std::string layer = prefix() + "layers." + std::to_string(i) + ".";
      layers[layer + "mlp.experts"] = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
      const std::string mixer = layer + (i % 4 == 3 ? "self_attn.q_proj" : "linear_attn.in_proj_z");
      layers[mixer] = {{"quant_algo", "MXFP8"}, {"group_size", 32}};
    }
    texts["hf_quant_config.json"] =
        Json{{"quantization", {{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", layers}}}}
            .dump(1);
  }
}

void TinyCheckpoint::Write(const std::string& dir) const {
  for (const auto& [name, text] : texts) WriteFixtureFile(dir + "/" + name, text);
  if (options_.shard_count == 1) {
    WriteFixtureFile(dir + "/model.safetensors", SafetensorsBytes(tensors));
    return;
  }
  Json map = Json::object();
  uint64_t total = 0;
  for (uint32_t k = 0; k < options_.shard_count; ++k) {
    const size_t begin = tensors.size() * k / options_.shard_count;
    const size_t end = tensors.size() * (k + 1) / options_.shard_count;
    const auto share = std::span(tensors).subspan(begin, end - begin);
    std::ostringstream name;
    name << "model-0000" << k + 1 << "-of-0000" << options_.shard_count << ".safetensors";
    WriteFixtureFile(dir + "/" + name.str(), SafetensorsBytes(share));
    for (const FixtureTensor& t : share) {
      map[t.name] = name.str();
      total += t.data.size();
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  WriteFixtureFile(dir + "/model.safetensors.index.json", index.dump(1));
}

}  // namespace hearth
