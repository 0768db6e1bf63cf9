// The exit codes of `hearth`, and the one function that maps a Status to them.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace hearth::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,    // the work failed
  kUsage = 2,      // the command line was wrong; nothing was done
  kDamaged = 3,    // data is damaged: DataLoss
  kResources = 4,  // not enough memory, disk or another resource: ResourceExhausted
  kNotFound = 5,   // a file or an entry is missing: NotFound
};

ExitCode ExitCodeFor(const absl::Status& status);

// One line for --help.
inline constexpr std::string_view kExitCodesHelp =
    "exit codes: 0 ok, 1 failure, 2 usage, 3 damaged data, 4 not enough memory or disk, 5 not "
    "found";

}  // namespace hearth::cli
