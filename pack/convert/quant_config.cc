#include "pack/convert/quant_config.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "pack/format/expert_layout.h"
#include "pack/quant/fp8_source.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(const std::string& path, std::string_view key, const Json& found,
                    std::string_view accepted) {
  std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 120) + "...";
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", ToAbsl(key), " is ", text, ", accepted: ", ToAbsl(accepted)));
}

const Json* Member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<QuantAlgo> AlgoNamed(const std::string& name) {
  // The weights are the same whether activations stay wide (W4A16) or not.
  if (name == "NVFP4" || name == "W4A16_NVFP4") return QuantAlgo::kNvfp4;
  if (name == "MXFP8") return QuantAlgo::kMxfp8;
  if (name == "FP8") return QuantAlgo::kFp8Tensor;
  if (name == "FP8_BLOCK_SCALES" || name == "FP8_PB_WO") return QuantAlgo::kFp8Blocks;
  return std::nullopt;
}

// One group size per algorithm is supported; a description may leave it out.
absl::Status CheckGroup(const Json& description, QuantAlgo algo, const std::string& path,
                        std::string_view where) {
  const Json* group = Member(description, "group_size");
  if (group == nullptr) return absl::OkStatus();
  const uint64_t expected = algo == QuantAlgo::kNvfp4   ? kNvfp4BlockValues
                            : algo == QuantAlgo::kMxfp8 ? kMxfp8BlockValues
                                                        : 0;
  if (expected == 0 || *group == expected) return absl::OkStatus();
  return Refuse(path, absl::StrCat(ToAbsl(where), "group_size of ", QuantAlgoName(algo)), *group,
                absl::StrCat(expected));
}

constexpr std::string_view kAlgos =
    "NVFP4, W4A16_NVFP4, MXFP8, FP8, FP8_BLOCK_SCALES, MIXED_PRECISION";

}  // namespace

const char* QuantAlgoName(QuantAlgo algo) {
  switch (algo) {
    case QuantAlgo::kNvfp4:
      return "NVFP4";
    case QuantAlgo::kFp8Blocks:
      return "FP8_BLOCK_SCALES";
    case QuantAlgo::kFp8Tensor:
      return "FP8";
    case QuantAlgo::kMxfp8:
      return "MXFP8";
  }
  return "unknown";
}

std::string_view CanonicalName(std::string_view full_name) {
  for (const std::string_view prefix : {"model.language_model.", "model."}) {
    if (full_name.starts_with(prefix)) return full_name.substr(prefix.size());
  }
  return full_name;
}

bool GlobMatches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = std::string_view::npos, resume = 0;  // last star, and where its text ends so far
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

absl::Status QuantConfig::Add(const Json& description, const std::string& path) {
  if (!description.is_object()) return Refuse(path, "quantization", description, "an object");
  const std::string method = TextOf(Member(description, "quant_method"));
  if (method == "fp8") return AddFp8(description, path);
  if (method == "compressed-tensors") return AddCompressedTensors(description, path);
  // hf_quant_config.json has no method; ModelOpt is the one that writes it.
  if (method.empty() || method.starts_with("modelopt")) return AddModelOpt(description, path);
  return Refuse(path, "quant_method", description["quant_method"],
                "modelopt, compressed-tensors, fp8");
}

absl::Status QuantConfig::AddModelOpt(const Json& description, const std::string& path) {
  const Json* algo = Member(description, "quant_algo");
  const std::string name = TextOf(algo);
  if (algo != nullptr && name != "MIXED_PRECISION") {
    const std::optional<QuantAlgo> known = AlgoNamed(name);
    if (!known) return Refuse(path, "quant_algo", *algo, kAlgos);
    HEARTH_RETURN_IF_ERROR(CheckGroup(description, *known, path, ""));
    default_ = *known;
  }
  AddExcluded(description);
  const Json* layers = Member(description, "quantized_layers");
  return layers == nullptr ? absl::OkStatus() : AddListed(*layers, path);
}

absl::Status QuantConfig::AddListed(const Json& layers, const std::string& path) {
  if (!layers.is_object()) return Refuse(path, "quantized_layers", layers, "an object");
  for (const auto& [name, layer] : layers.items()) {
    const std::string where = absl::StrCat("quantized_layers['", absl::CHexEscape(name), "'].");
    const Json* algo = Member(layer, "quant_algo");
    const std::optional<QuantAlgo> known = AlgoNamed(TextOf(algo));
    if (!known) {
      return Refuse(path, where + "quant_algo", algo == nullptr ? Json() : *algo, kAlgos);
    }
    HEARTH_RETURN_IF_ERROR(CheckGroup(layer, *known, path, where));
    listed_.insert_or_assign(std::string(CanonicalName(name)), *known);
  }
  return absl::OkStatus();
}

absl::Status QuantConfig::AddFp8(const Json& description, const std::string& path) {
  const Json* block = Member(description, "weight_block_size");
  if (block == nullptr) {
    default_ = QuantAlgo::kFp8Tensor;
  } else if (*block == Json::array({kFp8BlockValues, kFp8BlockValues})) {
    default_ = QuantAlgo::kFp8Blocks;
  } else {
    return Refuse(path, "weight_block_size", *block, "[128,128]");
  }
  AddExcluded(description);
  return absl::OkStatus();
}

// Which modules are quantised is said by regular expressions and class names there, so only the
// tensors can tell; what is checked is that the format is one that is known.
absl::Status QuantConfig::AddCompressedTensors(const Json& description, const std::string& path) {
  const Json* format = Member(description, "format");
  const std::string name = TextOf(format);
  if (format != nullptr && name != "nvfp4-pack-quantized" && name != "float-quantized" &&
      name != "mixed-precision") {
    return Refuse(path, "format", *format,
                  "nvfp4-pack-quantized, float-quantized, mixed-precision");
  }
  return absl::OkStatus();
}

void QuantConfig::AddExcluded(const Json& description) {
  for (const char* key : {"ignore", "exclude_modules", "modules_to_not_convert"}) {
    const Json* patterns = Member(description, key);
    if (patterns == nullptr || !patterns->is_array()) continue;
    for (const Json& pattern : *patterns) {
      if (pattern.is_string()) excluded_.push_back(pattern.get<std::string>());
    }
  }
}

std::optional<QuantAlgo> QuantConfig::ListedAlgo(std::string_view module) const {
  if (listed_.empty()) return std::nullopt;
  for (std::string_view name = module;;) {
    if (const auto it = listed_.find(ToAbsl(name)); it != listed_.end()) return it->second;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return std::nullopt;
    name = name.substr(0, dot);
  }
}

std::optional<QuantAlgo> QuantConfig::DefaultAlgo(std::string_view module) const {
  if (!default_) return std::nullopt;
  // Excluding a module excludes what is inside it.
  for (std::string_view name = module;;) {
    for (const std::string& pattern : excluded_) {
      if (GlobMatches(pattern, name) || GlobMatches(CanonicalName(pattern), name)) {
        return std::nullopt;
      }
    }
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return default_;
    name = name.substr(0, dot);
  }
}

}  // namespace hearth
