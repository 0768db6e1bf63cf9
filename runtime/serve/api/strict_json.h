// JSON as the API reads it: strict, bounded in depth, bytes and values, without repeated keys,
// valid UTF-8; errors name the place in our words and hold no bytes of the text. Only for .cc
// files: it shows nlohmann's JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace hearth {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  uint64_t bytes_max = 16ull << 20;
  uint32_t depth_max = 64;         // objects and lists within each other
  uint32_t values_max = 1u << 20;  // about 64 bytes of memory each, besides texts
};

// `what` names the text in errors where no field can be named: "the body". InvalidArgument, or for
// too many bytes OutOfRange with HTTP status 413. Numbers beyond what a double holds are refused;
// \u0000 is a character like any other, a lone surrogate is refused.
absl::StatusOr<Json> ParseStrictJson(std::string_view text, std::string_view what,
                                     const JsonLimits& limits = {});

// On one line. Never fails: bytes that are not UTF-8 become U+FFFD, numbers that are not finite
// become null.
std::string DumpJson(const Json& json);

// "a string", "an object", "an integer"...
std::string_view DescribeJson(const Json& json);

// The name as it may stand in an error: itself where it is 1 to 64 of [A-Za-z0-9_.-], otherwise
// "(unprintable)".
std::string PrintableName(std::string_view name);

}  // namespace hearth
