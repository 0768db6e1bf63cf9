// Goal: config.json becomes the geometry that the model document states, and every configuration of
// another architecture is refused by the name of what differs.
#include "pack/convert/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/convert/ngram_constants.h"
#include "tests/support/tiny_checkpoint.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<HfConfig> Parse(const TinyCheckpoint& tiny) {
  HfConfigTexts texts;
  texts.config_path = "/m/config.json";
  texts.config = tiny.texts.at("config.json");
  texts.generation_path = "/m/generation_config.json";
  if (tiny.texts.contains("generation_config.json")) {
    texts.generation = tiny.texts.at("generation_config.json");
  }
  texts.quant_path = "/m/hf_quant_config.json";
  if (tiny.texts.contains("hf_quant_config.json")) {
    texts.quant = tiny.texts.at("hf_quant_config.json");
  }
  return ParseHfConfig(texts);
}

// The values of the released model, as its document lists them.
constexpr const char* kReleased = R"({
 "model_type": "qwen4_exp", "tie_word_embeddings": false, "text_config": {
  "model_type": "qwen4_exp_text", "vocab_size": 248320, "hidden_size": 2560,
  "num_hidden_layers": 48, "full_attention_interval": 4, "num_attention_heads": 24,
  "num_key_value_heads": 2, "head_dim": 256, "attention_bias": false, "partial_rotary_factor": 0.25,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "mrope_interleaved": true,
                      "mrope_section": [11, 11, 10]},
  "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "hidden_act": "silu",
  "output_gate_type": "sigmoid", "linear_num_key_heads": 16, "linear_key_head_dim": 128,
  "linear_num_value_heads": 48, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
  "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
  "indexer_compress_ratio": 4, "hc_count": 4, "hc_lowrank": 320, "num_experts": 512,
  "num_experts_per_tok": 10, "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640,
  "ple_layer_ids": [2], "ple_embed_dim": 2560, "ple_conv_kernel_size": 4, "ngram_size": 3,
  "heads_per_ngram": 8, "ngram_vocab_size_base": 20000000,
  "make_ngram_vocab_size_divisible_by": 128,
  "split_ngram_parts": 128, "eos_token_id": 248044, "mtp_num_hidden_layers": 1,
  "mtp_use_dedicated_embeddings": false,
  "mtp": {"hybrid": true, "layer_types": ["full_attention"], "num_hidden_layers": 1,
          "rope_theta": 10000000}}})";

TEST(HfConfig, ReadsTheReleasedModel) {
  const absl::StatusOr<HfConfig> config =
      ParseHfConfig({.config_path = "/m/config.json", .config = kReleased});
  ASSERT_EQ(config.status(), absl::OkStatus());
  ModelGeometry g = config->geometry;
  EXPECT_EQ(g.layer_count(), 48u);
  EXPECT_EQ(std::count(g.layers.begin(), g.layers.end(), MixerKind::kQsa), 12);
  EXPECT_EQ(g.layers[3], MixerKind::kQsa);
  EXPECT_EQ(g.layers[47], MixerKind::kQsa);
  EXPECT_EQ(g.attention.rotary_dim, 64u);
  EXPECT_EQ(g.attention.block_count_max, 512u);
  EXPECT_EQ(g.gdn.conv_channels(), 10240u);
  EXPECT_EQ(g.stream_dim(), 10240u);
  EXPECT_TRUE(g.moe.renormalise);
  EXPECT_TRUE(g.has_mtp);
  EXPECT_EQ(g.mtp_rope_theta, 1e7);
  EXPECT_THAT(g.stop_tokens, ElementsAre(248044));
  EXPECT_EQ(g.ngram.layer, 1u);
  EXPECT_EQ(g.ngram.row_dim, 160u);
  EXPECT_EQ(config->ngram_part_count, 128u);
  EXPECT_EQ(config->ngram_derivation.seed, 1234u);

  ASSERT_EQ(DeriveNgramConstants(config->ngram_derivation, g.vocab_count, g.ngram),
            absl::OkStatus());
  EXPECT_EQ(g.ngram.row_count, 320001536u);
  EXPECT_THAT(g.ngram.multipliers, ElementsAre(23703573157769u, 20109073645365u, 8052911324071u));
  EXPECT_THAT(
      g.ngram.head_rows,
      ElementsAre(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                  20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171));
  EXPECT_EQ(g.ngram.head_offsets[1], 20000003u);
  EXPECT_EQ(g.ngram.head_offsets[15], 300001275u);
  EXPECT_EQ(g.Validate(), absl::OkStatus());
}

TEST(HfConfig, OtherArchitecturesAreRefusedByName) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* named;
  };
  const Case cases[] = {
      {"/model_type", "\"qwen3_next\"", "model_type is \"qwen3_next\""},
      {"/text_config/model_type", "\"llama\"", "text_config.model_type is \"llama\""},
      {"/text_config/hidden_act", "\"gelu\"", "text_config.hidden_act is \"gelu\""},
      {"/text_config/scoring_func", "\"sigmoid\"", "scoring_func is \"sigmoid\""},
      {"/text_config/routed_scaling_factor", "2.5", "routed_scaling_factor is 2.5"},
      {"/text_config/rope_parameters/rope_type", "\"yarn\"", "rope_type is \"yarn\""},
      {"/text_config/rope_scaling", R"({"type":"linear","factor":2})", "rope_scaling.type"},
      {"/text_config/layer_types/1", "\"sliding_attention\"", "layer_types"},
      {"/text_config/output_gate_type", "\"tanh\"", "output_gate_type is \"tanh\""},
      {"/text_config/attention_bias", "true", "attention_bias is true"},
      {"/text_config/indexer_kv_heads", "2", "indexer_kv_heads is 2"},
      {"/text_config/mtp_num_hidden_layers", "2", "mtp_num_hidden_layers is 2"},
      {"/text_config/mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings"},
      {"/text_config/mtp/layer_types", "[\"linear_attention\"]", "mtp.layer_types"},
      {"/text_config/ple_layer_ids", "[1,2]", "ple_layer_ids is [1,2]"},
      {"/text_config/ple_layer_ids", "[0]", "ple_layer_ids is [0]"},
      {"/quantization_config", R"({"quant_method":"gptq"})", "quant_method is \"gptq\""},
      {"/quantization_config", R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})",
       "quant_algo is \"W4A8_AWQ\""},
      {"/quantization_config",
       R"({"quant_method":"modelopt","quant_algo":"NVFP4","group_size":32})",
       "group_size of NVFP4 is 32"},
      {"/quantization_config", R"({"quant_method":"fp8","weight_block_size":[64,64]})",
       "weight_block_size is [64,64]"},
      {"/quantization_config", R"({"quant_method":"compressed-tensors","format":"pack-quantized"})",
       "format is \"pack-quantized\""},
  };
  for (const Case& c : cases) {
    TinyCheckpoint tiny{TinyOptions()};
    tiny.SetJson("config.json", c.pointer, c.value);
    const absl::Status status = Parse(tiny).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.pointer << " " << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr("/m/config.json: "));
    EXPECT_THAT(message, HasSubstr(c.named));
    EXPECT_THAT(message, HasSubstr("accepted"));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
}

TEST(HfConfig, MissingAndMalformedKeysAreNamed) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
        "rms_norm_eps", "hidden_act", "output_gate_type", "linear_conv_kernel_dim",
        "indexer_budget", "hc_count", "hc_lowrank", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "ple_embed_dim", "ngram_size", "eos_token_id"}) {
    TinyCheckpoint tiny{TinyOptions()};
    tiny.EraseJson("config.json", std::string("/text_config/") + key);
    const absl::Status missing = Parse(tiny).status();
    EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(missing.message()), HasSubstr(key));
    tiny.SetJson("config.json", std::string("/text_config/") + key, "[]");
    const absl::Status malformed = Parse(tiny).status();
    EXPECT_EQ(malformed.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(malformed.message()), HasSubstr(key));
  }
}

TEST(HfConfig, HugeNumbersAreRefusedBeforeAnythingIsMade) {
  for (const char* key : {"num_hidden_layers", "ngram_size", "heads_per_ngram", "num_experts"}) {
    for (const char* value : {"4000000000", "18446744073709551615", "-1", "1e300", "1.5"}) {
      TinyCheckpoint tiny{TinyOptions()};
      tiny.SetJson("config.json", std::string("/text_config/") + key, value);
      const absl::StatusOr<HfConfig> config = Parse(tiny);
      if (config.ok()) {
        EXPECT_STREQ(key, "num_experts");  // left to Validate()
        EXPECT_FALSE(config->geometry.Validate().ok());
      }
    }
  }
}

TEST(HfConfig, RoutingFlagsFollowTheFile) {
  TinyCheckpoint tiny{TinyOptions()};
  tiny.SetJson("config.json", "/text_config/norm_topk_prob", "false");
  tiny.SetJson("config.json", "/text_config/output_gate_type", "\"silu\"");
  tiny.SetJson("config.json", "/text_config/mtp", "null");
  const absl::StatusOr<HfConfig> config = Parse(tiny);
  ASSERT_EQ(config.status(), absl::OkStatus());
  EXPECT_FALSE(config->geometry.moe.renormalise);
  EXPECT_EQ(config->geometry.gdn.output_gate, OutputGate::kSilu);
  EXPECT_EQ(config->geometry.mtp_rope_theta, 10000.0);  // the trunk's
}

TEST(HfConfig, StopTokensFallBackToTheConfig) {
  TinyCheckpoint tiny{TinyOptions()};
  tiny.texts.erase("generation_config.json");
  EXPECT_THAT(Parse(tiny)->geometry.stop_tokens, ElementsAre(256));
  tiny.texts["generation_config.json"] = R"({"eos_token_id": 7})";
  EXPECT_THAT(Parse(tiny)->geometry.stop_tokens, ElementsAre(7));
  tiny.texts["generation_config.json"] = R"({"eos_token_id": [-1]})";
  EXPECT_THAT(std::string(Parse(tiny).status().message()),
              HasSubstr("/m/generation_config.json: eos_token_id"));
}

TEST(HfConfig, DeeplyNestedTextIsAnErrorOrIgnored) {
  TinyCheckpoint tiny{TinyOptions()};
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  std::string text = tiny.texts["config.json"];
  text.insert(text.find('{') + 1, "\"unknown\": " + deep + ",");
  tiny.texts["config.json"] = text;
  EXPECT_EQ(Parse(tiny).status(), absl::OkStatus());
  tiny.texts["config.json"] = deep;
  EXPECT_EQ(Parse(tiny).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(QuantConfig, GlobsMatchWholeNames) {
  EXPECT_TRUE(GlobMatches("*mlp.gate", "layers.0.mlp.gate"));
  EXPECT_FALSE(GlobMatches("*mlp.gate", "layers.0.mlp.gate_proj"));
  EXPECT_TRUE(GlobMatches("mtp*", "mtp.layers.0"));
  EXPECT_FALSE(GlobMatches("mtp*", "layers.mtp"));
  EXPECT_TRUE(GlobMatches("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(GlobMatches("*a*b*", "xxbxxaxx"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_FALSE(GlobMatches("", "x"));
  // Linear backtracking: a pattern of many stars must not take exponential time.
  EXPECT_FALSE(GlobMatches("*a*a*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST(QuantConfig, ListedModulesAndTheirParentsAreFound) {
  const TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4Csf));
  const absl::StatusOr<HfConfig> config = Parse(tiny);
  ASSERT_EQ(config.status(), absl::OkStatus());
  EXPECT_EQ(config->quant.ListedAlgo("layers.0.mlp.experts.5.up_proj"), QuantAlgo::kNvfp4);
  EXPECT_EQ(config->quant.ListedAlgo("layers.3.self_attn.q_proj"), QuantAlgo::kMxfp8);
  EXPECT_EQ(config->quant.ListedAlgo("layers.3.self_attn.k_proj"), std::nullopt);
  EXPECT_EQ(config->quant.DefaultAlgo("layers.0.mlp.experts.5.up_proj"), std::nullopt);
}

}  // namespace
}  // namespace hearth
