// From the words of a command line to the fields of a config: --long-name VALUE or
// --long-name=VALUE, each at most once (lists excepted). There are no short names and no positional
// arguments.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/config/field.h"

namespace hearth::cli {

// "max_tokens" -> "--max-tokens"
std::string FlagName(std::string_view field_name);

// Sets the fields that `args` names and says which they were. Everything else is InvalidArgument:
// an unknown flag (with the nearest known one), a flag given twice, a missing value, a value
// refused.
absl::StatusOr<GivenFields> ParseFlags(std::span<const std::string> args,
                                       std::span<const Field> fields);

// The same error in the words of the command line: field names before the first colon of the
// message become flags, so "top_k: has no effect" reads "--top-k: has no effect".
absl::Status InFlagWords(const absl::Status& status, std::span<const Field> fields);

}  // namespace hearth::cli
