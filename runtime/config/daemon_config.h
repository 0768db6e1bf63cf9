// What `hearthd` serves, from how much memory, and what it keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/config/cache_config.h"
#include "runtime/config/field.h"

namespace hearth {

struct DaemonConfig {
  std::string pack;
  std::string socket;
  std::optional<uint64_t> ram_budget;
  std::string state;
  uint32_t save_seconds = 300;  // what a crash may cost; a state is 98 KiB for the full model
  std::string profile;
  std::string policy = "forecast";
  ReadMethod io = ReadMethod::kAuto;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("socket", socket, "where engines connect (hearth run --daemon PATH)", {.metavar = "PATH"});
    v("ram_budget", ram_budget, "RAM for experts; the others stay on the drive",
      {.metavar = "SIZE"});
    v("state", state, "keep what is hot here, for the next start", {.metavar = "FILE"});
    v("save_seconds", save_seconds, "how often the state is saved",
      {.minimum = 1, .maximum = 86'400});
    v("profile", profile, "routing profile to start from", {.metavar = "FILE"});
    v("policy", policy, "which experts RAM keeps", {.metavar = "NAME"});
    v("io", io, "how the drive is read");
  }

  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
