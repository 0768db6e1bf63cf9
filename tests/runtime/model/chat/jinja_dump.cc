// Renders templates for tests/oracle/jinja_oracle.py. Reads lines of JSON {"template": text,
// "variables": {...}} on stdin and writes one line of JSON each: {"output": text} or {"error":
// text}.
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_interpreter.h"
#include "runtime/model/chat/jinja_json.h"
#include "runtime/model/chat/jinja_parser.h"

namespace hearth::jinja {
namespace {

absl::StatusOr<std::string> Render(const std::string& line) {
  HEARTH_ASSIGN_OR_RETURN(const Value job, ParseJson(line, "job"));
  const Value* source = job.IsDict() ? job.AsDict().FindString("template") : nullptr;
  const Value* variables = job.IsDict() ? job.AsDict().FindString("variables") : nullptr;
  if (source == nullptr || !source->IsString() || variables == nullptr || !variables->IsDict()) {
    return absl::InvalidArgumentError("job: expected a template and variables");
  }
  HEARTH_ASSIGN_OR_RETURN(const Template parsed, ParseTemplate(source->AsString(), "template"));
  RenderInputs inputs;
  for (const DictEntry& entry : variables->AsDict().entries()) {
    inputs.variables.push_back({entry.key.AsString(), entry.value});
  }
  return RenderTemplate(parsed, std::move(inputs));
}

}  // namespace
}  // namespace hearth::jinja

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::StatusOr<std::string> text = hearth::jinja::Render(line);
    const std::string& shown = text.ok() ? *text : std::string(text.status().message());
    std::cout << (text.ok() ? "{\"output\": " : "{\"error\": ") << hearth::jinja::QuoteJson(shown)
              << "}" << std::endl;
  }
  return 0;
}
