// What `hearth doctor` looks at.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "runtime/config/field.h"

namespace hearth::cli {

struct DoctorConfig {
  std::string pack;
  bool deep = false;
  bool strict = false;
  std::string telemetry;
  std::string key_file;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "look at this pack and the drive it lies on, too", {.metavar = "DIR"});
    v("deep", deep, "read and check every byte of the pack");
    v("strict", strict, "warnings fail, too");
    v("telemetry", telemetry, "compare with what a server measured: its address, or a recording",
      {.metavar = "FILE|URL"});
    v("key_file", key_file, "its first line is the server's API key", {.metavar = "FILE"});
  }

  // Fields without effect.
  absl::Status Validate(const GivenFields&) const {
    if (deep && pack.empty()) {
      return absl::InvalidArgumentError("deep: has no effect without pack");
    }
    if (!key_file.empty() && telemetry.empty()) {
      return absl::InvalidArgumentError("key_file: has no effect without telemetry");
    }
    return absl::OkStatus();
  }
};

}  // namespace hearth::cli
