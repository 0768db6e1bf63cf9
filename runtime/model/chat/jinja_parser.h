// Template text to syntax tree. What the interpreter cannot do is refused here, by path and line.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_ast.h"

namespace hearth::jinja {

// `path` names the template in messages.
absl::StatusOr<Template> ParseTemplate(std::string_view source, const std::string& path);

}  // namespace hearth::jinja
