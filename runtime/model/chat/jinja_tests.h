// The tests of the template language: `value is name(arguments)`.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

bool IsTest(std::string_view name);
std::string KnownTests();  // their names, for messages

// InvalidArgument where there is no such test.
absl::StatusOr<bool> ApplyTest(Budget& budget, std::string_view name, const Value& value,
                               const Arguments& arguments);

}  // namespace hearth::jinja
