// An independent check of a JSON value against a schema, for the keywords the tests use. Slow and
// plain.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace hearth::grammar {

// Empty: the value satisfies the schema; else why not.
std::string WhyNot(const nlohmann::json& root, const nlohmann::json& schema,
                   const nlohmann::json& value);
// Of texts; a text that is no JSON, too.
std::string WhyNot(const std::string& schema, const std::string& text);

}  // namespace hearth::grammar
