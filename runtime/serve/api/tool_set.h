// The functions a request offers to the model: names, and of each argument whether it is a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

// What a schema says of an argument's type, as far as the text of a call needs it.
enum class ArgumentType : uint8_t {
  kUnknown,     // no type is given: JSON where the text is JSON, otherwise a string
  kString,      // the text itself, always
  kNotString,   // number, integer, boolean, array, object, null: the text is JSON
  kAlsoString,  // several types, a string among them: JSON if it is JSON of another type
};

struct ToolArgument {
  std::string name;
  ArgumentType type = ArgumentType::kUnknown;
};

struct Tool {
  std::string name;  // [A-Za-z0-9_-]{1,64}
  std::string description;
  std::string parameters_json;  // JSON schema; empty: none given
  bool strict = false;
  std::vector<ToolArgument> arguments;  // the schema's properties
};

struct ToolSet {
  std::vector<Tool> tools;
  const Tool* Find(std::string_view name) const;
};

ArgumentType TypeOf(const Tool& tool, std::string_view argument);

}  // namespace hearth
