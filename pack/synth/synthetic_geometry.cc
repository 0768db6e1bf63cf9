#include "pack/synth/synthetic_geometry.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "pack/convert/ngram_constants.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

std::vector<MixerKind> LayerKinds(uint32_t count) {
  std::vector<MixerKind> kinds;
  for (uint32_t i = 0; i < count; ++i) {
    kinds.push_back(i % 4 == 3 ? MixerKind::kQsa : MixerKind::kGdn);
  }
  return kinds;
}

void SetNgramTable(uint64_t head_rows, ModelGeometry& g) {
  const absl::Status status =
      DeriveNgramConstants({.vocab_base = head_rows, .row_multiple = 128}, g.vocab_count, g.ngram);
  HEARTH_CHECK(status.ok());
}

ModelGeometry FlashNext() {
  ModelGeometry g = {.vocab_count = 248320,
                     .hidden = 2560,
                     .layers = LayerKinds(48),
                     .stream_count = 4,
                     .hc_rank = 320,
                     .norm_epsilon = 1e-6f,
                     .context_tokens_max = 262144};
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
             .heads_per_ngram = 8,
             .row_dim = 160,
             .conv_taps = 4,
             .eos_token = 248044};
  SetNgramTable(20'000'000, g);
  g.has_mtp = true;
  g.mtp_rope_theta = 1e7;
  g.stop_tokens = {248046, 248044};
  return g;
}

ModelGeometry Flashlet() {
  ModelGeometry g = {.vocab_count = 8192,
                     .hidden = 256,
                     .layers = LayerKinds(8),
                     .stream_count = 4,
                     .hc_rank = 32,
                     .norm_epsilon = 1e-6f,
                     .context_tokens_max = 8192};
  g.attention = {.head_count = 8,
                 .kv_head_count = 2,
                 .head_dim = 64,
                 .rotary_dim = 16,
                 .rope_theta = 1e6,
                 .indexer_head_count = 4,
                 .indexer_head_dim = 32,
                 .block_tokens = 4,
                 .block_count_max = 32};
  g.gdn = {.key_head_count = 4,
           .value_head_count = 8,
           .key_head_dim = 32,
           .value_head_dim = 32,
           .conv_taps = 4,
           .output_gate = OutputGate::kSilu};
  g.moe = {.expert_count = 64, .experts_per_token = 6, .expert_width = 64, .shared_width = 128};
  g.ngram = {.layer = 1,
             .ngram_size = 3,
             .heads_per_ngram = 4,
             .row_dim = 32,
             .conv_taps = 4,
             .eos_token = 0};
  SetNgramTable(10'000, g);
  g.has_mtp = true;
  g.mtp_rope_theta = 1e6;
  g.stop_tokens = {2, 0};
  return g;
}

ModelGeometry Small() {
  ModelGeometry g = {.vocab_count = 4096,
                     .hidden = 2560,
                     .layers = LayerKinds(4),
                     .stream_count = 4,
                     .hc_rank = 32,
                     .norm_epsilon = 1e-6f,
                     .context_tokens_max = 32768};
  g.attention = {.head_count = 4,
                 .kv_head_count = 1,
                 .head_dim = 64,
                 .rotary_dim = 16,
                 .rope_theta = 1e6,
                 .indexer_head_count = 4,
                 .indexer_head_dim = 32,
                 .block_tokens = 4,
                 .block_count_max = 64};
  g.gdn = {.key_head_count = 2,
           .value_head_count = 4,
           .key_head_dim = 64,
           .value_head_dim = 64,
           .conv_taps = 4,
           .output_gate = OutputGate::kSigmoid};
  g.moe = {.expert_count = 64, .experts_per_token = 10, .expert_width = 640, .shared_width = 128};
  g.ngram = {.layer = 1,
             .ngram_size = 3,
             .heads_per_ngram = 2,
             .row_dim = 32,
             .conv_taps = 4,
             .eos_token = 0};
  SetNgramTable(kNgramHeadRows, g);
  g.stop_tokens = {2, 0};
  return g;
}

// The multiple of eight that comes nearest to `bytes` over all layers.
absl::StatusOr<uint32_t> CountForBytes(uint64_t bytes, const ExpertLayout& layout,
                                       uint32_t layer_count) {
  const double step = static_cast<double>(layout.stride_bytes()) * layer_count * kExpertCountStep;
  const double steps = std::max(1.0, std::round(static_cast<double>(bytes) / step));
  if (steps * kExpertCountStep > 16384) {
    return absl::InvalidArgumentError(absl::StrCat(
        "experts_bytes: ", FormatBytes(bytes), " in ", layer_count, " layers of experts of ",
        layout.stride_bytes(), " bytes are more than 16384 for each layer: take more layers"));
  }
  return static_cast<uint32_t>(steps) * kExpertCountStep;
}

}  // namespace

const char* SyntheticModelName(SyntheticModel model) {
  switch (model) {
    case SyntheticModel::kFlashNext:
      return "flash-next";
    case SyntheticModel::kFlashlet:
      return "flashlet";
    case SyntheticModel::kSmall:
      return "small";
  }
  return "unknown";
}

ModelGeometry NamedGeometry(SyntheticModel model) {
  switch (model) {
    case SyntheticModel::kFlashNext:
      return FlashNext();
    case SyntheticModel::kFlashlet:
      return Flashlet();
    case SyntheticModel::kSmall:
      return Small();
  }
  HEARTH_CHECK(false);
}

absl::StatusOr<ModelGeometry> MakeSyntheticGeometry(const SyntheticShape& shape) {
  if (shape.expert_count != 0 && shape.experts_bytes != 0) {
    return absl::InvalidArgumentError(
        "experts, experts_bytes: both say how many experts there are; give one of them");
  }
  ModelGeometry g = NamedGeometry(shape.model);
  if (shape.layer_count != 0) g.layers = LayerKinds(shape.layer_count);
  if (shape.experts_per_token != 0) g.moe.experts_per_token = shape.experts_per_token;
  if (shape.hidden != 0) g.hidden = shape.hidden;
  if (shape.expert_width != 0) g.moe.expert_width = shape.expert_width;
  if (shape.expert_count != 0) g.moe.expert_count = shape.expert_count;
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertLayout layout,
      ExpertLayout::Create(shape.format, g.hidden, g.moe.expert_width, shape.xt_bits));
  if (shape.experts_bytes != 0) {
    HEARTH_ASSIGN_OR_RETURN(g.moe.expert_count,
                            CountForBytes(shape.experts_bytes, layout, g.layer_count()));
  }
  if (g.moe.expert_count < g.moe.experts_per_token) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts: ", g.moe.expert_count, " in each layer, but a token takes ",
                     g.moe.experts_per_token, ": raise experts or experts_bytes, or lower top_k"));
  }
  g.ngram.layer = std::min(g.ngram.layer, g.layer_count() - 1);
  HEARTH_RETURN_IF_ERROR(DeriveNgramConstants(
      {.vocab_base = shape.ngram_head_rows, .row_multiple = 128}, g.vocab_count, g.ngram));
  if (!shape.has_mtp) {
    g.has_mtp = false;
    g.mtp_rope_theta = 0;
  } else if (!g.has_mtp) {
    return absl::InvalidArgumentError(
        absl::StrCat("mtp: ", SyntheticModelName(shape.model), " has no MTP head"));
  }
  HEARTH_RETURN_IF_ERROR(g.Validate());
  return g;
}

}  // namespace hearth
