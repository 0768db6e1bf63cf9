// What a state that is kept on disk belongs to: everything that its bits depend on but the tokens
// and how they were cut. Another model, arithmetic, machine or build of this program is another
// binding.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pack/format/manifest.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/prefix_file.h"

namespace hearth {

// Hash of the program's own file, as 32 hex digits: kernels may compute other bits after any
// change.
absl::StatusOr<std::string> HashProgram(const std::string& path = "/proc/self/exe");

// One "name value" a line, for HashPrefixBinding; `isa` names the CPU's kernels. Where experts lie
// and how many threads compute is not in it: neither changes a bit.
std::string PrefixBindingText(const Manifest& manifest, const RunnerOptions& options,
                              std::string_view isa, std::string_view program_hash);

}  // namespace hearth
