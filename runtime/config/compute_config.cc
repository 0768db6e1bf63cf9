// The forms of the device's name, and fields that exclude each other or do nothing.
#include "runtime/config/compute_config.h"

#include <charconv>

#include "absl/strings/str_cat.h"

#include "runtime/base/cpus.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<DeviceSetting> ParseDevice(std::string_view text) {
  constexpr std::string_view kCuda = "cuda";
  constexpr std::string_view kCudaIndex = "cuda:";
  if (text == "auto") return DeviceSetting{.kind = DeviceSetting::Kind::kAuto};
  if (text == "cpu") return DeviceSetting{.kind = DeviceSetting::Kind::kCpu};
  if (text == kCuda) return DeviceSetting{.kind = DeviceSetting::Kind::kCuda};
  if (text.starts_with(kCudaIndex)) {
    uint32_t index = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + kCudaIndex.size(), end, index);
    if (error == std::errc() && rest == end) {
      return DeviceSetting{.kind = DeviceSetting::Kind::kCuda, .index = index};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("device: found '", ToAbsl(text.substr(0, 60)),
                                                 "', expected auto, cpu, cuda or cuda:N, such as ",
                                                 "cuda:0"));
}

absl::Status ValidateWorkers(const GivenFields& given, std::string_view cpus) {
  if (!given.Has("cpus")) return absl::OkStatus();
  if (given.Has("threads")) {
    return absl::InvalidArgumentError("threads, cpus: expected at most one of them, found both");
  }
  return Annotate(ParseCpuList(cpus).status(), "cpus");
}

absl::Status ComputeConfig::Validate(const GivenFields& given) const {
  HEARTH_ASSIGN_OR_RETURN(const DeviceSetting setting, ParseDevice(device));
  if (setting.kind == DeviceSetting::Kind::kCpu && given.Has("kv")) {
    return absl::InvalidArgumentError(
        "kv: has no effect on the CPU, which keeps fp32; give --device auto or cuda");
  }
  return ValidateWorkers(given, cpus);
}

}  // namespace hearth
