// Status codes to exit codes.
#include "tools/hearth/exit_code.h"

namespace hearth::cli {

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kDamaged;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kResources;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace hearth::cli
