#include "tests/runtime/model/grammar/schema_check.h"

#include <cmath>
#include <map>
#include <regex>
#include <string>

#include <nlohmann/json.hpp>

namespace hearth::grammar {
namespace {

using Json = nlohmann::json;

bool HasType(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
}

size_t Characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

const Json& Resolve(const Json& root, const std::string& ref) {
  return root.at(Json::json_pointer(ref.substr(1)));
}

std::string CheckText(const Json& schema, const std::string& text) {
  const size_t characters = Characters(text);
  if (characters < schema.value("minLength", size_t{0})) return "too short";
  if (schema.contains("maxLength") && characters > schema["maxLength"].get<size_t>()) {
    return "too long";
  }
  // std::regex knows bytes only: where a pattern or a text has more, others check it.
  const std::string pattern = schema.value("pattern", "");
  if (!pattern.empty() && characters == text.size() && pattern.find("\\u") == std::string::npos &&
      !std::regex_search(text, std::regex(pattern, std::regex::ECMAScript))) {
    return "not the pattern";
  }
  static const std::map<std::string, std::string> kFormats = {
      {"date", "\\d{4}-\\d\\d-\\d\\d"},
      {"time", "\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)"},
      {"date-time", "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)"},
      {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", "\\d{1,3}(\\.\\d{1,3}){3}"},
      {"email", "[^@ ]+@[^@ ]+\\.[a-zA-Z]+"}};
  const auto format = kFormats.find(schema.value("format", ""));
  if (format != kFormats.end() && !std::regex_match(text, std::regex(format->second))) {
    return "not the format";
  }
  return "";
}

std::string CheckNumber(const Json& schema, const Json& value) {
  const double number = value.get<double>();
  if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return "below";
  if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return "above";
  if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) {
    return "not below";
  }
  if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) {
    return "not above";
  }
  if (schema.contains("multipleOf") &&
      value.get<int64_t>() % schema["multipleOf"].get<int64_t>() != 0) {
    return "no multiple";
  }
  return "";
}

std::string CheckObject(const Json& root, const Json& schema, const Json& value) {
  for (const auto& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return "without " + name.get<std::string>();
  }
  if (value.size() < schema.value("minProperties", size_t{0})) return "too few members";
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"].get<size_t>()) {
    return "too many members";
  }
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    const Json of_member = properties.contains(name)
                               ? properties[name]
                               : schema.value("additionalProperties", Json(true));
    const std::string why = WhyNot(root, of_member, member);
    if (!why.empty()) return name + ": " + why;
  }
  return "";
}

std::string CheckArray(const Json& root, const Json& schema, const Json& value) {
  if (value.size() < schema.value("minItems", size_t{0})) return "too few items";
  if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) {
    return "too many items";
  }
  Json prefix = schema.value("prefixItems", Json::array());
  Json items = schema.value("items", Json(true));
  if (items.is_array()) {  // drafts before 2020-12
    prefix = items;
    items = schema.value("additionalItems", Json(true));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const Json of_item = i < prefix.size() ? prefix[i] : items;
    const std::string why = WhyNot(root, of_item, value[i]);
    if (!why.empty()) return std::to_string(i) + ": " + why;
  }
  return "";
}

std::string CheckCombined(const Json& root, const Json& schema, const Json& value) {
  if (schema.contains("$ref")) {
    const std::string why = WhyNot(root, Resolve(root, schema["$ref"]), value);
    if (!why.empty()) return why;
  }
  for (const Json& part : schema.value("allOf", Json::array())) {
    const std::string why = WhyNot(root, part, value);
    if (!why.empty()) return why;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    bool any = false;
    for (const Json& part : schema[keyword]) any = any || WhyNot(root, part, value).empty();
    if (!any) return std::string("none of ") + keyword;
  }
  return "";
}

}  // namespace

std::string WhyNot(const Json& root, const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "nothing is allowed";
  if (schema.contains("type") && !(value.is_null() && schema.value("nullable", false))) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    bool any = false;
    for (const Json& type : types) any = any || HasType(value, type.get<std::string>());
    if (!any) return "not of type " + types.dump();
  }
  if (schema.contains("const") && value != schema["const"]) return "not the value";
  if (schema.contains("enum")) {
    bool any = false;
    for (const Json& one : schema["enum"]) any = any || one == value;
    if (!any) return "none of the values";
  }
  std::string why = CheckCombined(root, schema, value);
  if (why.empty() && value.is_string()) why = CheckText(schema, value.get<std::string>());
  if (why.empty() && value.is_number()) why = CheckNumber(schema, value);
  if (why.empty() && value.is_object()) why = CheckObject(root, schema, value);
  if (why.empty() && value.is_array()) why = CheckArray(root, schema, value);
  return why;
}

std::string WhyNot(const std::string& schema, const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return "not JSON";
  const Json root = Json::parse(schema);
  return WhyNot(root, root, parsed);
}

}  // namespace hearth::grammar
