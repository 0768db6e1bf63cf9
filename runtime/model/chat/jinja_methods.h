// The methods of strings, lists, tuples and dicts that templates may call.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

enum class MethodStatus : uint8_t {
  kNone,  // Python has no such attribute
  kSupported,
  kUnsupported,  // Python has it, this interpreter has not
  kUnsafe,       // the sandbox refuses it: it would change the object, or reach into Python
};
MethodStatus LookUpMethod(const Value& self, std::string_view name);

// Whether a call of a method with that name can never work here, whatever it is called on.
bool IsRefusedMethod(std::string_view name);

// REQUIRES: LookUpMethod(method.self, method.name) is kSupported.
absl::StatusOr<Value> CallMethod(Budget& budget, const MethodObject& method,
                                 const Arguments& arguments);

}  // namespace hearth::jinja
