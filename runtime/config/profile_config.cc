#include "runtime/config/profile_config.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status Required(bool there, std::string_view name) {
  if (there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": is required"));
}

}  // namespace

absl::Status ProfileConfig::Validate(const GivenFields& given) const {
  HEARTH_RETURN_IF_ERROR(Required(!pack.empty(), "pack"));
  HEARTH_RETURN_IF_ERROR(Required(!text.empty(), "text"));
  HEARTH_RETURN_IF_ERROR(Required(!out.empty(), "out"));
  if (given.Has("trace_tokens_max") && trace.empty()) {
    return absl::InvalidArgumentError("trace_tokens_max: has no effect without trace");
  }
  HEARTH_RETURN_IF_ERROR(compute.Validate(given));
  return cache.Validate(given);
}

absl::Status ProfileReportConfig::Validate(const GivenFields& given) const {
  HEARTH_RETURN_IF_ERROR(Required(!profile.empty(), "profile"));
  if (given.Has("trace_tokens_max") && trace.empty()) {
    return absl::InvalidArgumentError("trace_tokens_max: has no effect without trace");
  }
  return absl::OkStatus();
}

absl::Status ProfileMergeConfig::Validate(const GivenFields&) const {
  HEARTH_RETURN_IF_ERROR(Required(!out.empty(), "out"));
  if (profile.size() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("profile: found ", profile.size(), ", expected two or more"));
}

absl::Status ProfileDiffConfig::Validate(const GivenFields&) const {
  if (profile.size() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("profile: found ", profile.size(), ", expected two"));
}

}  // namespace hearth
