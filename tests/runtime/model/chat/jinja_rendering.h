// Renders a template given as text, for the tests of the interpreter.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_interpreter.h"
#include "runtime/model/chat/jinja_json.h"
#include "runtime/model/chat/jinja_parser.h"

namespace hearth::jinja {

inline absl::StatusOr<std::string> RenderText(std::string_view source,
                                              std::string_view variables_json = "{}") {
  HEARTH_ASSIGN_OR_RETURN(const Template parsed, ParseTemplate(source, "t.jinja"));
  HEARTH_ASSIGN_OR_RETURN(const Value variables, ParseJson(variables_json, "variables"));
  RenderInputs inputs;
  for (const DictEntry& entry : variables.AsDict().entries()) {
    inputs.variables.push_back({entry.key.AsString(), entry.value});
  }
  return RenderTemplate(parsed, std::move(inputs));
}

// The text, or "error: " and the message.
inline std::string RenderOrError(std::string_view source, std::string_view variables_json = "{}") {
  const absl::StatusOr<std::string> text = RenderText(source, variables_json);
  return text.ok() ? *text : "error: " + std::string(text.status().message());
}

}  // namespace hearth::jinja
