// Goal: Validate() accepts the shapes of the models there are, and refuses each field that leaves
// its bounds by name.
#include "pack/format/geometry.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::HasSubstr;

ModelGeometry Released() {
  ModelGeometry g;
  g.vocab_count = 248320;
  g.hidden = 2560;
  for (int i = 0; i < 48; ++i) g.layers.push_back(i % 4 == 3 ? MixerKind::kQsa : MixerKind::kGdn);
  g.stream_count = 4;
  g.hc_rank = 320;
  g.norm_epsilon = 1e-6f;
  g.context_tokens_max = 262144;
  g.attention = {.head_count = 24,
                 .kv_head_count = 2,
                 .head_dim = 256,
                 .rotary_dim = 64,
                 .rope_theta = 1e7,
                 .indexer_head_count = 4,
                 .indexer_head_dim = 128,
                 .block_tokens = 4,
                 .block_count_max = 512};
  g.gdn = {.key_head_count = 16,
           .value_head_count = 48,
           .key_head_dim = 128,
           .value_head_dim = 128,
           .conv_taps = 4,
           .output_gate = OutputGate::kSigmoid};
  g.moe = {.expert_count = 512, .experts_per_token = 10, .expert_width = 640, .shared_width = 640};
  g.ngram = {.layer = 1,
             .ngram_size = 3,
             .heads_per_ngram = 1,
             .row_dim = 160,
             .conv_taps = 4,
             .eos_token = 248044,
             .row_count = 256,
             .multipliers = {3, 5, 7},
             .head_rows = {101, 103},
             .head_offsets = {0, 101}};
  g.has_mtp = true;
  g.mtp_rope_theta = 1e7;
  g.stop_tokens = {248046, 248044};
  return g;
}

TEST(ModelGeometry, ReleasedShapeIsValid) { EXPECT_EQ(Released().Validate(), absl::OkStatus()); }

TEST(ModelGeometry, WithoutTableAndMtpTheirFieldsDoNotMatter) {
  ModelGeometry g = Released();
  g.ngram = NgramGeometry();
  g.has_mtp = false;
  g.mtp_rope_theta = 0;
  EXPECT_EQ(g.Validate(), absl::OkStatus());
}

TEST(ModelGeometry, EachFieldOutOfBoundsIsNamed) {
  struct Case {
    const char* field;
    std::function<void(ModelGeometry&)> damage;
  };
  const Case cases[] = {
      {"vocab_count", [](auto& g) { g.vocab_count = 0; }},
      {"vocab_count", [](auto& g) { g.vocab_count = UINT32_MAX; }},
      {"hidden", [](auto& g) { g.hidden = 0; }},
      {"hidden", [](auto& g) { g.hidden = UINT32_MAX; }},
      {"layer count", [](auto& g) { g.layers.clear(); }},
      {"layer count", [](auto& g) { g.layers.resize(5000); }},
      {"stream_count", [](auto& g) { g.stream_count = 0; }},
      {"hc_rank", [](auto& g) { g.hc_rank = UINT32_MAX; }},
      {"norm_epsilon", [](auto& g) { g.norm_epsilon = 0; }},
      {"norm_epsilon", [](auto& g) { g.norm_epsilon = std::nanf(""); }},
      {"context_tokens_max", [](auto& g) { g.context_tokens_max = 0; }},
      {"attention.head_count", [](auto& g) { g.attention.head_count = 25; }},
      {"attention.kv_head_count", [](auto& g) { g.attention.kv_head_count = 0; }},
      {"attention.head_dim", [](auto& g) { g.attention.head_dim = UINT32_MAX; }},
      {"attention.rotary_dim", [](auto& g) { g.attention.rotary_dim = 63; }},
      {"attention.rotary_dim", [](auto& g) { g.attention.rotary_dim = 258; }},
      {"attention.rotary_dim", [](auto& g) { g.attention.indexer_head_dim = 32; }},
      {"attention.rope_theta", [](auto& g) { g.attention.rope_theta = INFINITY; }},
      {"attention.block_tokens", [](auto& g) { g.attention.block_tokens = 0; }},
      {"attention.block_count_max", [](auto& g) { g.attention.block_count_max = 0; }},
      {"gdn.value_head_count", [](auto& g) { g.gdn.value_head_count = 47; }},
      {"gdn.key_head_dim", [](auto& g) { g.gdn.key_head_dim = 0; }},
      {"gdn.conv_taps", [](auto& g) { g.gdn.conv_taps = 0; }},
      {"gdn.output_gate", [](auto& g) { g.gdn.output_gate = static_cast<OutputGate>(9); }},
      {"moe.expert_count", [](auto& g) { g.moe.expert_count = UINT32_MAX; }},
      {"moe.experts_per_token", [](auto& g) { g.moe.experts_per_token = 0; }},
      {"moe.experts_per_token", [](auto& g) { g.moe.expert_count = 9; }},
      {"moe.expert_width", [](auto& g) { g.moe.expert_width = 0; }},
      {"moe.shared_width", [](auto& g) { g.moe.shared_width = UINT32_MAX; }},
      {"ngram.layer", [](auto& g) { g.ngram.layer = 48; }},
      {"ngram.ngram_size", [](auto& g) { g.ngram.ngram_size = 1; }},
      {"ngram.heads_per_ngram", [](auto& g) { g.ngram.heads_per_ngram = UINT32_MAX; }},
      {"ngram.row_dim", [](auto& g) { g.ngram.row_dim = 0; }},
      {"ngram.eos_token", [](auto& g) { g.ngram.eos_token = -1; }},
      {"ngram.eos_token", [](auto& g) { g.ngram.eos_token = 248320; }},
      {"ngram.row_count", [](auto& g) { g.ngram.row_count = UINT64_MAX; }},
      {"ngram.multipliers", [](auto& g) { g.ngram.multipliers.pop_back(); }},
      {"ngram.multipliers", [](auto& g) { g.ngram.multipliers[1] = 0; }},
      {"ngram.multipliers", [](auto& g) { g.ngram.multipliers[1] = uint64_t{1} << 60; }},
      {"ngram.head_rows", [](auto& g) { g.ngram.head_rows[0] = 0; }},
      {"ngram.head_rows", [](auto& g) { g.ngram.head_rows[0] = UINT64_MAX; }},
      {"ngram.head_offsets", [](auto& g) { g.ngram.head_offsets[1] = 154; }},
      {"ngram.head_offsets", [](auto& g) { g.ngram.head_offsets[1] = UINT64_MAX; }},
      {"mtp_rope_theta", [](auto& g) { g.mtp_rope_theta = -1; }},
      {"stop_tokens", [](auto& g) { g.stop_tokens = {-5}; }},
      {"stop token count", [](auto& g) { g.stop_tokens.assign(100, 1); }},
  };
  for (const Case& c : cases) {
    ModelGeometry g = Released();
    c.damage(g);
    const absl::Status status = g.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
  }
}

}  // namespace
}  // namespace hearth
