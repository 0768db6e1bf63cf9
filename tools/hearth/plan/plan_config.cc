// Reading of the flags of `hearth plan`.
#include "tools/hearth/plan/plan_config.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "pack/synth/synthetic_geometry.h"
#include "runtime/base/status.h"
#include "runtime/config/compute_config.h"

namespace hearth::cli {

absl::StatusOr<std::vector<Quantisation>> ParseQuantisations(const std::string& text) {
  std::vector<Quantisation> list;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (part == "nvfp4") {
      list.push_back({.format = ExpertFormat::kNvfp4});
    } else if (part == "bf16") {
      list.push_back({.format = ExpertFormat::kBf16});
    } else if (part == "xt2" || part == "xt3" || part == "xt4") {
      const uint8_t bits = static_cast<uint8_t>(part[2] - '0');
      list.push_back({.format = ExpertFormat::kXt, .bits = XtBits::All(bits)});
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "quant: expected nvfp4, xt2, xt3, xt4 or bf16, with commas between them, found '", part,
          "'"));
    }
  }
  return list;
}

absl::StatusOr<ModelGeometry> GeometryOf(const std::string& model) {
  for (const SyntheticModel known : kSyntheticModels) {
    if (model == SyntheticModelName(known)) return NamedGeometry(known);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model: expected flash-next, flashlet or small, found '", model, "'"));
}

absl::Status PlanConfig::Validate(const GivenFields& given) const {
  if (!pack.empty() && (given.Has("model") || given.Has("quant"))) {
    return absl::InvalidArgumentError(
        "model, quant: have no effect with pack, which says them itself");
  }
  HEARTH_RETURN_IF_ERROR(ParseQuantisations(quant).status());
  HEARTH_RETURN_IF_ERROR(GeometryOf(model).status());
  if (device != "auto" && device != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat("device: expected auto or cpu, found '", device, "'"));
  }
  return ValidateWorkers(given, cpus);
}

}  // namespace hearth::cli
