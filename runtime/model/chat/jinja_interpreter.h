// Renders a parsed template. Bounded in steps, bytes and depth; see jinja_limits.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"

#include "runtime/model/chat/jinja_ast.h"
#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

struct RenderInputs {
  std::vector<KeywordArgument> variables;
  std::optional<absl::CivilSecond> now;  // what strftime_now() prints; without it, that is refused
};

// Errors carry "<path>:<line>: ". What raise_exception() says is InvalidArgument.
absl::StatusOr<std::string> RenderTemplate(const Template& parsed, RenderInputs inputs);

}  // namespace hearth::jinja
