// config.json and generation_config.json of a qwen4_exp checkpoint, read into a ModelGeometry.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pack/convert/ngram_constants.h"
#include "pack/convert/quant_config.h"
#include "pack/format/geometry.h"

namespace hearth {

struct HfConfig {
  // Complete but for what only the tensors tell: whether the MTP layer is there (has_mtp says that
  // the configuration has one) and the n-gram constants and row count (all unset).
  ModelGeometry geometry;
  bool has_ngram = false;
  NgramDerivation ngram_derivation;
  uint32_t ngram_part_count = 0;  // split_ngram_parts; 0: not stated
  bool tie_word_embeddings = false;
  QuantConfig quant;
};

// Where a text came from is for messages. `generation` and `quant` may be empty: such a file is
// optional.
struct HfConfigTexts {
  std::string config_path, config;
  std::string generation_path, generation;  // generation_config.json
  std::string quant_path, quant;            // hf_quant_config.json
};

// InvalidArgument naming path and key for what is missing, malformed or not this architecture:
// unknown model_type, hidden_act, scoring function, rope_type, layer type and output gate are
// refused by name.
absl::StatusOr<HfConfig> ParseHfConfig(const HfConfigTexts& texts);

}  // namespace hearth
