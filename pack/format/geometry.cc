// The bounds of a model's shape. Each limit is far above any model that this runtime can meet and
// low enough that sizes computed from the fields stay within 64 bits, and vector lengths within 32.
#include "pack/format/geometry.h"

#include <cmath>
#include <initializer_list>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// Largest products that follow: stream_dim <= 2^24, vocab x stream_dim x 4 bytes <= 2^48, one
// expert 3 x 2^20 x 2^18 values, conv_channels <= 3 x 2^24.
constexpr uint64_t kVocabMax = 1u << 22;
constexpr uint64_t kHiddenMax = 1u << 20;
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kStreamsMax = 16;
constexpr uint64_t kRankMax = 1u << 18;
constexpr uint64_t kContextMax = 1u << 26;
constexpr uint64_t kHeadsMax = 4096;
constexpr uint64_t kHeadDimMax = 4096;
constexpr uint64_t kBlockTokensMax = 4096;
constexpr uint64_t kBlocksMax = 1u << 20;
constexpr uint64_t kTapsMax = 64;
constexpr uint64_t kExpertsMax = 1u << 14;
constexpr uint64_t kExpertsPerTokenMax = 256;
constexpr uint64_t kWidthMax = 1u << 18;
constexpr uint64_t kNgramMax = 8;
constexpr uint64_t kHeadsPerNgramMax = 64;
constexpr uint64_t kTableRowsMax = uint64_t{1} << 40;
constexpr uint64_t kStopTokensMax = 64;

struct Bound {
  const char* field;
  uint64_t value;
  uint64_t min;
  uint64_t max;
};

absl::Status CheckBounds(std::initializer_list<Bound> bounds) {
  for (const Bound& b : bounds) {
    if (b.value >= b.min && b.value <= b.max) continue;
    return absl::InvalidArgumentError(absl::StrCat("geometry: ", b.field, " is ", b.value,
                                                   ", accepted are ", b.min, " to ", b.max));
  }
  return absl::OkStatus();
}

absl::Status CheckMultiple(const char* field, uint64_t value, const char* of, uint64_t divisor) {
  if (value % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "geometry: ", field, " is ", value, ", which is not a multiple of ", of, " (", divisor, ")"));
}

absl::Status CheckAtMost(const char* field, uint64_t value, const char* bound_name,
                         uint64_t bound) {
  if (value <= bound) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("geometry: ", field, " is ", value, ", more than ",
                                                 bound_name, " (", bound, ")"));
}

absl::Status CheckReal(const char* field, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("geometry: ", field, " is ", value, ", accepted are ", min, " to ", max));
}

absl::Status CheckToken(const char* field, int64_t token, uint64_t vocab_count) {
  if (token >= 0 && static_cast<uint64_t>(token) < vocab_count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("geometry: ", field, " is token ", token, ", the vocabulary has ", vocab_count));
}

absl::Status CheckAttention(const AttentionGeometry& a) {
  HEARTH_RETURN_IF_ERROR(CheckBounds({
      {"attention.head_count", a.head_count, 1, kHeadsMax},
      {"attention.kv_head_count", a.kv_head_count, 1, kHeadsMax},
      {"attention.head_dim", a.head_dim, 1, kHeadDimMax},
      {"attention.rotary_dim", a.rotary_dim, 2, a.head_dim},
      {"attention.indexer_head_count", a.indexer_head_count, 1, kHeadsMax},
      {"attention.indexer_head_dim", a.indexer_head_dim, 1, kHeadDimMax},
      {"attention.block_tokens", a.block_tokens, 1, kBlockTokensMax},
      {"attention.block_count_max", a.block_count_max, 1, kBlocksMax},
  }));
  HEARTH_RETURN_IF_ERROR(
      CheckMultiple("attention.head_count", a.head_count, "kv_head_count", a.kv_head_count));
  HEARTH_RETURN_IF_ERROR(CheckMultiple("attention.rotary_dim", a.rotary_dim, "two", 2));
  HEARTH_RETURN_IF_ERROR(
      CheckAtMost("attention.rotary_dim", a.rotary_dim, "indexer_head_dim", a.indexer_head_dim));
  return CheckReal("attention.rope_theta", a.rope_theta, 1, 1e15);
}

absl::Status CheckGdn(const GdnGeometry& g) {
  HEARTH_RETURN_IF_ERROR(CheckBounds({
      {"gdn.key_head_count", g.key_head_count, 1, kHeadsMax},
      {"gdn.value_head_count", g.value_head_count, 1, kHeadsMax},
      {"gdn.key_head_dim", g.key_head_dim, 1, kHeadDimMax},
      {"gdn.value_head_dim", g.value_head_dim, 1, kHeadDimMax},
      {"gdn.conv_taps", g.conv_taps, 1, kTapsMax},
      {"gdn.output_gate", static_cast<uint64_t>(g.output_gate), 0, 1},
  }));
  return CheckMultiple("gdn.value_head_count", g.value_head_count, "key_head_count",
                       g.key_head_count);
}

absl::Status CheckMoe(const MoeGeometry& m) {
  HEARTH_RETURN_IF_ERROR(CheckBounds({
      {"moe.expert_count", m.expert_count, 1, kExpertsMax},
      {"moe.experts_per_token", m.experts_per_token, 1, kExpertsPerTokenMax},
      {"moe.expert_width", m.expert_width, 1, kWidthMax},
      {"moe.shared_width", m.shared_width, 1, kWidthMax},
  }));
  return CheckAtMost("moe.experts_per_token", m.experts_per_token, "expert_count", m.expert_count);
}

absl::Status CheckLength(const char* field, size_t found, uint64_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("geometry: ", field, " has ", found, " entries, expected ", expected));
}

// Every row that the hash can name lies in the table, and no product of a token and a multiplier
// reaches 2^63, where signed and unsigned remainders part.
absl::Status CheckHash(const NgramGeometry& n, uint64_t vocab_count) {
  HEARTH_RETURN_IF_ERROR(CheckLength("ngram.multipliers", n.multipliers.size(), n.ngram_size));
  HEARTH_RETURN_IF_ERROR(CheckLength("ngram.head_rows", n.head_rows.size(), n.head_count()));
  HEARTH_RETURN_IF_ERROR(CheckLength("ngram.head_offsets", n.head_offsets.size(), n.head_count()));
  const uint64_t multiplier_max = 0x7FFFFFFFFFFFFFFFull / vocab_count;
  for (const uint64_t multiplier : n.multipliers) {
    HEARTH_RETURN_IF_ERROR(CheckBounds({{"ngram.multipliers", multiplier, 1, multiplier_max}}));
  }
  for (size_t i = 0; i < n.head_rows.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(
        CheckBounds({{"ngram.head_rows", n.head_rows[i], 1, n.row_count},
                     {"ngram.head_offsets", n.head_offsets[i], 0, n.row_count - n.head_rows[i]}}));
  }
  return absl::OkStatus();
}

absl::Status CheckNgram(const NgramGeometry& n, const ModelGeometry& model) {
  if (n.row_count == 0) return absl::OkStatus();
  HEARTH_RETURN_IF_ERROR(CheckBounds({
      {"ngram.layer", n.layer, 0, model.layers.size() - 1},
      {"ngram.ngram_size", n.ngram_size, 2, kNgramMax},
      {"ngram.heads_per_ngram", n.heads_per_ngram, 1, kHeadsPerNgramMax},
      {"ngram.row_dim", n.row_dim, 1, kWidthMax},
      {"ngram.conv_taps", n.conv_taps, 1, kTapsMax},
      {"ngram.row_count", n.row_count, 1, kTableRowsMax},
  }));
  HEARTH_RETURN_IF_ERROR(CheckToken("ngram.eos_token", n.eos_token, model.vocab_count));
  return CheckHash(n, model.vocab_count);
}

}  // namespace

absl::Status ModelGeometry::Validate() const {
  HEARTH_RETURN_IF_ERROR(CheckBounds({
      {"vocab_count", vocab_count, 1, kVocabMax},
      {"hidden", hidden, 1, kHiddenMax},
      {"layer count", layers.size(), 1, kLayersMax},
      {"stream_count", stream_count, 1, kStreamsMax},
      {"hc_rank", hc_rank, 1, kRankMax},
      {"context_tokens_max", context_tokens_max, 1, kContextMax},
      {"stop token count", stop_tokens.size(), 0, kStopTokensMax},
  }));
  for (const MixerKind kind : layers) {
    HEARTH_RETURN_IF_ERROR(CheckBounds({{"layer kind", static_cast<uint64_t>(kind), 0, 1}}));
  }
  HEARTH_RETURN_IF_ERROR(CheckReal("norm_epsilon", norm_epsilon, 1e-12, 0.1));
  HEARTH_RETURN_IF_ERROR(CheckAttention(attention));
  HEARTH_RETURN_IF_ERROR(CheckGdn(gdn));
  HEARTH_RETURN_IF_ERROR(CheckMoe(moe));
  HEARTH_RETURN_IF_ERROR(CheckNgram(ngram, *this));
  if (has_mtp) HEARTH_RETURN_IF_ERROR(CheckReal("mtp_rope_theta", mtp_rope_theta, 1, 1e15));
  for (const int32_t token : stop_tokens) {
    HEARTH_RETURN_IF_ERROR(CheckToken("stop_tokens", token, vocab_count));
  }
  return absl::OkStatus();
}

}  // namespace hearth
