// The functions a request offers to the model: names, and of each argument which JSON types it may
// have. Turns the text of an argument, as models write it, into JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

// A set of JSON types; 0: nothing is known, so any.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonString = 1;
inline constexpr JsonTypes kJsonNumber = 2;
inline constexpr JsonTypes kJsonInteger = 4;
inline constexpr JsonTypes kJsonBoolean = 8;
inline constexpr JsonTypes kJsonNull = 16;
inline constexpr JsonTypes kJsonArray = 32;
inline constexpr JsonTypes kJsonObject = 64;

struct ToolArgument {
  std::string name;
  JsonTypes types = 0;
};

struct Tool {
  std::string name;                     // [A-Za-z0-9_-]{1,64}
  std::string parameters_json;          // JSON schema; empty: none given
  std::vector<ToolArgument> arguments;  // the schema's properties

  JsonTypes TypesOf(std::string_view argument) const;  // 0 for one it does not name
};

struct ToolSet {
  std::vector<Tool> tools;
  const Tool* Find(std::string_view name) const;  // nullptr: none of that name
};

inline constexpr uint32_t kToolCountMax = 256;
bool IsToolName(std::string_view name);

// The properties of a schema with their types: "type", otherwise the types of enum and const
// values, otherwise those of all branches of anyOf and oneOf. An empty or unusual schema gives
// none.
std::vector<ToolArgument> ArgumentsOf(std::string_view parameters_json);

// The JSON text of an argument that was written as `text`. Text of the types' is JSON as it stands
// (True, False and None too); all else is a string, the text itself.
std::string ArgumentJson(std::string_view text, JsonTypes types);

}  // namespace hearth
