#include "tests/support/synthetic_checkpoint.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/format/directory.h"
#include "pack/format/float_codes.h"
#include "pack/reader/pack_geometry.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

uint64_t HashOf(uint64_t seed, std::string_view name) {
  uint64_t h = SplitMix64(seed);
  for (const char c : name) h = SplitMix64(h ^ static_cast<unsigned char>(c));
  return h;
}

// About N(0, 1)-shaped, exact in BF16 (8 significant bits) unless `full`.
float ValueAt(uint64_t hash, uint64_t index, bool full) {
  const uint64_t r = SplitMix64(hash + index);
  const auto base = static_cast<int32_t>(r & 255) - 128;
  const float scaled = static_cast<float>(base) * 0x1p-7f;
  return full ? scaled * (1.0f + static_cast<float>((r >> 8) & 0xFFFF) * 0x1p-20f) : scaled;
}

uint8_t FiniteE4m3(uint64_t r) {
  const auto code = static_cast<uint8_t>(r);
  return IsE4m3Nan(code) ? static_cast<uint8_t>(code & 0x80) : code;
}

void FillMatrix(uint64_t hash, ExpertFormat format, uint32_t rows, uint32_t cols, SourceMatrix& m) {
  const size_t count = size_t{rows} * cols;
  m = {};
  m.rows = rows;
  m.cols = cols;
  switch (format) {
    case ExpertFormat::kNvfp4:
      m.codes.resize(count / 2);
      m.scales.resize(count / kNvfp4BlockValues);
      for (size_t i = 0; i < m.codes.size(); ++i) {
        m.codes[i] = static_cast<uint8_t>(SplitMix64(hash + i));
      }
      for (size_t i = 0; i < m.scales.size(); ++i) {
        m.scales[i] = static_cast<uint8_t>(SplitMix64(~hash + i) % 0x7F);
      }
      m.multiplier = 1e-4f + ValueAt(hash, 0, true) * 1e-5f;
      break;
    case ExpertFormat::kFp8: {
      m.codes.resize(count);
      const size_t blocks = size_t{(rows + 127) / 128} * ((cols + 127) / 128);
      for (size_t i = 0; i < count; ++i) m.codes[i] = FiniteE4m3(SplitMix64(hash + i));
      for (size_t i = 0; i < blocks; ++i) {
        m.block_scales.push_back(0.01f + std::abs(ValueAt(~hash, i, true)));
      }
      break;
    }
    case ExpertFormat::kBf16:
    case ExpertFormat::kF32:
      m.values.resize(count);
      for (size_t i = 0; i < count; ++i) {
        m.values[i] = ValueAt(hash, i, format == ExpertFormat::kF32);
      }
      break;
    case ExpertFormat::kXt:
      HEARTH_CHECK(false);  // no checkpoint holds it
  }
}

}  // namespace

ModelGeometry SyntheticGeometry(const SyntheticOptions& o) {
  ModelGeometry g;
  g.vocab_count = o.vocab_count;
  g.hidden = o.hidden;
  for (uint32_t i = 0; i < o.layer_count; ++i) {
    g.layers.push_back(i % 4 == 3 ? MixerKind::kQsa : MixerKind::kGdn);
  }
  g.stream_count = 2;
  g.hc_rank = 4;
  g.norm_epsilon = 1e-6f;
  g.context_tokens_max = 256;
  g.attention = {.head_count = 2,
                 .kv_head_count = 1,
                 .head_dim = 8,
                 .rotary_dim = 4,
                 .rope_theta = 1e4,
                 .indexer_head_count = 1,
                 .indexer_head_dim = 8,
                 .block_tokens = 4,
                 .block_count_max = 4};
  g.gdn = {.key_head_count = 1,
           .value_head_count = 2,
           .key_head_dim = 8,
           .value_head_dim = 8,
           .conv_taps = 3,
           .output_gate = OutputGate::kSilu};
  g.moe = {.expert_count = o.expert_count,
           .experts_per_token = 1,
           .expert_width = o.width,
           .shared_width = 8,
           .renormalise = true};
  if (o.ngram_rows > 0) {
    g.ngram = {.layer = 0,
               .ngram_size = 2,
               .heads_per_ngram = 1,
               .row_dim = o.ngram_row_dim,
               .conv_taps = 2,
               .eos_token = 1,
               .row_count = o.ngram_rows,
               .multipliers = {3, 5},
               .head_rows = {o.ngram_rows},
               .head_offsets = {0}};
  }
  g.has_mtp = o.has_mtp;
  g.mtp_rope_theta = o.has_mtp ? 1e4 : 0;
  g.stop_tokens = {1};
  return g;
}

SyntheticCheckpoint::SyntheticCheckpoint(const SyntheticOptions& options)
    : options_(options), geometry_(SyntheticGeometry(options)) {
  texts["tokenizer.json"] = "{\"model\": {}}";
  texts["chat_template.jinja"] = "{{ messages }}";
  const auto add = [this](const std::vector<TensorShape>& shapes) {
    for (const TensorShape& s : shapes) {
      DenseInfo info{
          .name = s.name, .rows = s.rows, .cols = s.cols, .is_f32_source = options_.f32_dense};
      if (s.name.ends_with("conv1d")) std::swap(info.rows, info.cols);
      dense_.push_back(info);
    }
  };
  add(ExpectedDenseTensors(geometry_));
  add(ExpectedMtpTensors(geometry_));
  if (options_.ngram_rows > 0) {
    ngram_ = {.format = options_.ngram_format,
              .row_count = options_.ngram_rows,
              .row_dim = options_.ngram_row_dim,
              .row_bytes = *NgramRowBytes(options_.ngram_format, options_.ngram_row_dim),
              .scale = options_.ngram_format == NgramRowFormat::kFp8 ? 0.25f : 1.0f};
  }
}

absl::StatusOr<std::string> SyntheticCheckpoint::ContentHash(const HashProgressFn& progress) const {
  if (progress) progress(64, 64);
  return absl::StrCat(absl::Hex(options_.seed, absl::kZeroPad16), "0000000000000000");
}

absl::Status SyntheticCheckpoint::ReadDenseRows(std::string_view name, uint64_t row_begin,
                                                uint64_t row_count, std::span<float> out) const {
  for (const DenseInfo& info : dense_) {
    if (info.name != name) continue;
    HEARTH_CHECK(row_begin + row_count <= info.rows && out.size() == row_count * info.cols);
    const uint64_t hash = HashOf(options_.seed, name);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ValueAt(hash, row_begin * info.cols + i, options_.f32_dense);
    }
    return absl::OkStatus();
  }
  return absl::NotFoundError(std::string(name));
}

ExpertFormat SyntheticCheckpoint::expert_format(LayerId layer) const {
  return layer.value < geometry_.layer_count() ? options_.experts : options_.mtp_experts;
}

absl::Status SyntheticCheckpoint::ReadExpert(ExpertKey key, SourceExpert& expert) const {
  if (key.layer.value >= fail_at_layer) return absl::DataLossError("the source ends here");
  expert.format = expert_format(key.layer);
  const std::string name = absl::StrCat(key.layer.value, ".", key.expert.value);
  const uint32_t hidden = geometry_.hidden;
  const uint32_t width = geometry_.moe.expert_width;
  FillMatrix(HashOf(options_.seed, name + ".gate"), expert.format, width, hidden, expert.gate);
  FillMatrix(HashOf(options_.seed, name + ".up"), expert.format, width, hidden, expert.up);
  FillMatrix(HashOf(options_.seed, name + ".down"), expert.format, hidden, width, expert.down);
  return absl::OkStatus();
}

absl::Status SyntheticCheckpoint::ReadNgramRows(uint64_t row_begin, uint64_t row_count,
                                                std::span<std::byte> out) const {
  HEARTH_CHECK(out.size() == row_count * ngram_.row_bytes);
  const uint64_t hash = HashOf(options_.seed, "ngram");
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t place = row_begin * ngram_.row_bytes + i;
    const uint8_t code = FiniteE4m3(SplitMix64(hash + place));
    const bool is_scale =
        ngram_.format == NgramRowFormat::kNvfp4 && place % ngram_.row_bytes >= ngram_.row_dim / 2;
    out[i] = static_cast<std::byte>(is_scale ? code & 0x7E : code);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SyntheticCheckpoint::ReadText(std::string_view name) const {
  const auto it = texts.find(name);
  if (it == texts.end()) return absl::NotFoundError(std::string(name));
  return it->second;
}

}  // namespace hearth
