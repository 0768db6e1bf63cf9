// A command's flags as a TOML file: flat, one key per field, named as the field is.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/config/field.h"

namespace hearth::cli {

// The fields in their order: those in `given` as keys, the others as comments with their defaults,
// so that reading the text back gives the same fields the same values and leaves the rest alone.
std::string ConfigFileText(std::span<const Field> fields, const GivenFields& given);

// Sets the fields that the TOML `text` names, but for those in `given`, to which it adds what it
// set. Values are strings in the forms of the flags, or TOML's own numbers, booleans and arrays.
// InvalidArgument, with path and line: what is not TOML, unknown keys (with the nearest known one),
// tables, and values that the field refuses.
absl::Status ApplyConfigText(std::string_view text, const std::string& path,
                             std::span<const Field> fields, GivenFields& given);

// The same for a file of at most 1 MiB; NotFound and others as reading it says.
absl::Status ApplyConfigFile(const std::string& path, std::span<const Field> fields,
                             GivenFields& given);

}  // namespace hearth::cli
