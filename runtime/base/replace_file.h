// Saving a whole file so that no reader and no crash ever meets half of it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// `path` holds all of `text`, durably, or still what it held before, whenever the process or the
// machine stops. Errors name the file and its folder. The text lies beside it as
// "<path>.partial-<pid>" while it is written; a process that is killed leaves that behind.
absl::Status ReplaceFile(const std::string& path, std::string_view text);

// Whether ReplaceFile() would be let do it: for asking before long work.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace hearth
