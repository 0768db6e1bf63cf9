// What every CUDA function answers in a build without CUDA.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// Unimplemented: "<what>: this build has no CUDA: ...", with the remedy.
absl::Status WithoutCuda(std::string_view what);

}  // namespace hearth
