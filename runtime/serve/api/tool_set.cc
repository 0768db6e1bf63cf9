#include "runtime/serve/api/tool_set.h"

#include <utility>

#include "runtime/base/status.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

constexpr size_t kToolNameBytesMax = 64;
constexpr int kBranchDepthMax = 4;

JsonTypes TypeOfValue(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return kJsonString;
    case Json::value_t::boolean:
      return kJsonBoolean;
    case Json::value_t::null:
      return kJsonNull;
    case Json::value_t::array:
      return kJsonArray;
    case Json::value_t::object:
      return kJsonObject;
    case Json::value_t::number_float:
      return kJsonNumber;
    default:
      return kJsonInteger;
  }
}

JsonTypes TypeOfName(const Json& name) {
  if (name == "string") return kJsonString;
  if (name == "number") return kJsonNumber | kJsonInteger;
  if (name == "integer") return kJsonInteger;
  if (name == "boolean") return kJsonBoolean;
  if (name == "null") return kJsonNull;
  if (name == "array") return kJsonArray;
  if (name == "object") return kJsonObject;
  return 0;
}

// 0: any, or not known.
JsonTypes TypesOfSchema(const Json& schema, int depth) {
  if (!schema.is_object() || depth > kBranchDepthMax) return 0;
  JsonTypes types = 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types = TypeOfName(*type);
    if (type->is_array()) {
      for (const Json& name : *type) types |= TypeOfName(name);
    }
    if (types != 0 && schema.value("nullable", Json()) == true) types |= kJsonNull;
    return types;
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) types |= TypeOfValue(value);
    return types;
  }
  if (const auto value = schema.find("const"); value != schema.end()) return TypeOfValue(*value);
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(keyword);
    if (branches == schema.end() || !branches->is_array()) continue;
    for (const Json& branch : *branches) {
      const JsonTypes more = TypesOfSchema(branch, depth + 1);
      if (more == 0) return 0;
      types |= more;
    }
    return types;
  }
  return 0;
}

std::string_view TrimWhitespace(std::string_view text) {
  constexpr std::string_view kWhitespace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kWhitespace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhitespace) - begin + 1);
}

// As Python writes them, which models often do.
std::string_view PythonWordAsJson(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  return word;
}

}  // namespace

JsonTypes Tool::TypesOf(std::string_view argument) const {
  for (const ToolArgument& candidate : arguments) {
    if (candidate.name == argument) return candidate.types;
  }
  return 0;
}

const Tool* ToolSet::Find(std::string_view name) const {
  for (const Tool& tool : tools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

bool IsToolName(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::vector<ToolArgument> ArgumentsOf(std::string_view parameters_json) {
  std::vector<ToolArgument> arguments;
  if (parameters_json.empty()) return arguments;
  const absl::StatusOr<Json> schema = ParseStrictJson(parameters_json, "parameters");
  if (!schema.ok() || !schema->is_object()) return arguments;
  const auto properties = schema->find("properties");
  if (properties == schema->end() || !properties->is_object()) return arguments;
  for (const auto& [name, property] : properties->items()) {
    arguments.push_back({name, TypesOfSchema(property, 0)});
  }
  return arguments;
}

std::string ArgumentJson(std::string_view text, JsonTypes types) {
  const auto as_string = [text] { return DumpJson(Json(std::string(text))); };
  if (types == kJsonString) return as_string();
  const std::string_view json_text = PythonWordAsJson(TrimWhitespace(text));
  const absl::StatusOr<Json> value = ParseStrictJson(json_text, "an argument");
  if (!value.ok()) return as_string();
  const bool fits = types == 0 || (types & TypeOfValue(*value)) != 0;
  // A string that is one of several types stays what was written, quotes and all.
  if (value->is_string() && types != 0 && (types & kJsonString) != 0) return as_string();
  if (!fits && (types & kJsonString) != 0) return as_string();
  return std::string(json_text);  // as written: no number loses digits
}

}  // namespace hearth
