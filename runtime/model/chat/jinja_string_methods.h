// The methods of strings, as Python's str has them.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

std::span<const std::string_view> StringMethodNames();

// REQUIRES: method.name is one of StringMethodNames(). Of text marked as markup, results are markup
// and what join() and replace() insert is escaped.
absl::StatusOr<Value> CallStringMethod(Budget& budget, const MethodObject& method,
                                       const Arguments& arguments);

}  // namespace hearth::jinja
