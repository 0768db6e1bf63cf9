// The shapes that `hearth pack synth` knows by name, and how a wish for other sizes changes them.
// profiles/models/*.json shows each as a manifest would; a test holds the two together.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"
#include "pack/format/geometry.h"

namespace hearth {

enum class SyntheticModel : uint8_t {
  kFlashNext,  // Qwen3.8-Flash-Next: 48 layers of 512 experts, hidden 2560, top 10
  kFlashlet,   // the small model that ships with the project
  kSmall,      // experts of full size in few layers; everything else narrow
};
inline constexpr std::array<SyntheticModel, 3> kSyntheticModels = {
    SyntheticModel::kFlashNext, SyntheticModel::kFlashlet, SyntheticModel::kSmall};

const char* SyntheticModelName(SyntheticModel model);  // "flash-next", "flashlet", "small"

// The whole shape of the model, n-gram table and MTP head included. Its control tokens are
// ngram.eos_token (end of text) and the four after it: turn start, turn end, think, end of think.
ModelGeometry NamedGeometry(SyntheticModel model);

inline constexpr uint64_t kNgramHeadRows = 1009;  // of a made-up table, unless asked otherwise
inline constexpr uint32_t kExpertCountStep = 8;   // what experts_bytes rounds to

// Zero keeps what the model has.
struct SyntheticShape {
  SyntheticModel model = SyntheticModel::kSmall;
  uint32_t layer_count = 0;  // every fourth layer is QSA
  uint32_t expert_count = 0;
  uint32_t experts_per_token = 0;
  uint32_t hidden = 0;
  uint32_t expert_width = 0;
  uint64_t experts_bytes = 0;  // sets expert_count instead: the trunk's experts take about this
  uint64_t ngram_head_rows = kNgramHeadRows;  // of each head's share of the table, about
  bool has_mtp = false;                       // keeps the MTP head, where the model has one
  ExpertFormat format = ExpertFormat::kNvfp4;
  XtBits xt_bits = {};
};

// A valid geometry. InvalidArgument names what does not fit: a side that the format does not take,
// fewer experts than a token asks for, both of expert_count and experts_bytes.
absl::StatusOr<ModelGeometry> MakeSyntheticGeometry(const SyntheticShape& shape);

}  // namespace hearth
