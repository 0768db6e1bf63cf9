// What a checkpoint's configuration says about the number format of each module:
// quantization_config of config.json and hf_quant_config.json. Names and dtypes of tensors decide
// how they are read; this is checked against them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

enum class QuantAlgo : uint8_t { kNvfp4, kFp8Blocks, kFp8Tensor, kMxfp8 };
const char* QuantAlgoName(QuantAlgo algo);  // "NVFP4", "FP8_BLOCK_SCALES", "FP8", "MXFP8"

// A tensor or module name without "model.language_model." or "model.": what a pack calls it.
std::string_view CanonicalName(std::string_view full_name);

// `*` stands for any text; the whole name must match.
bool GlobMatches(std::string_view pattern, std::string_view name);

class QuantConfig {
 public:
  // Reads one of the two descriptions into this object; `path` is for messages. Unknown methods,
  // algorithms and group sizes are refused by name.
  absl::Status Add(const nlohmann::json& description, const std::string& path);

  // By canonical module name ("layers.3.mlp.experts.5.up_proj"). A module that the configuration
  // lists by its own name or that of a module around it:
  std::optional<QuantAlgo> ListedAlgo(std::string_view module) const;
  // The format of everything that no pattern excludes; nullopt where the module is excluded or the
  // configuration says nothing.
  std::optional<QuantAlgo> DefaultAlgo(std::string_view module) const;

 private:
  absl::Status AddModelOpt(const nlohmann::json& description, const std::string& path);
  absl::Status AddFp8(const nlohmann::json& description, const std::string& path);
  absl::Status AddCompressedTensors(const nlohmann::json& description, const std::string& path);
  absl::Status AddListed(const nlohmann::json& layers, const std::string& path);
  void AddExcluded(const nlohmann::json& description);

  std::optional<QuantAlgo> default_;
  std::vector<std::string> excluded_;                   // globs
  absl::flat_hash_map<std::string, QuantAlgo> listed_;  // by canonical name
};

}  // namespace hearth
