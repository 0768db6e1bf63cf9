#include "runtime/config/daemon_config.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {

absl::Status DaemonConfig::Validate(const GivenFields& given) const {
  for (const std::string_view name : {"pack", "socket", "ram_budget"}) {
    if (given.Has(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": is required"));
  }
  if (pack.empty() || socket.empty()) {
    return absl::InvalidArgumentError("pack, socket: expected a path, found nothing");
  }
  if (given.Has("save_seconds") && state.empty()) {
    return absl::InvalidArgumentError("save_seconds: has no effect without state");
  }
  return absl::OkStatus();
}

}  // namespace hearth
