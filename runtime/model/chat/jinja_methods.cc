// Tables of methods, and those of dicts and lists. The methods of strings are in
// jinja_string_methods.cc.
#include "runtime/model/chat/jinja_methods.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_arguments.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_string_methods.h"

namespace hearth::jinja {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kStringRefused[] = {
    "casefold",     "center",      "encode",    "expandtabs", "format",    "format_map",
    "isidentifier", "isprintable", "istitle",   "ljust",      "maketrans", "rindex",
    "rjust",        "swapcase",    "translate", "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kDictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kDictRefused[] = {"fromkeys"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListUnsafe[] = {"append", "clear",  "extend",  "insert",
                                            "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kRangeRefused[] = {"count", "index", "start", "step", "stop"};
constexpr std::string_view kViewRefused[] = {"isdisjoint", "mapping"};
constexpr std::string_view kNumberRefused[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kMacroRefused[] = {"arguments",     "caller",          "catch_kwargs",
                                              "catch_varargs", "explicit_caller", "name"};

struct TypeMethods {
  Names supported;
  Names unsafe;
  Names refused;
};

TypeMethods MethodsOf(const Value& self) {
  switch (self.kind()) {
    case Kind::kString:
      return {StringMethodNames(), {}, kStringRefused};
    case Kind::kDict:
      return {kDictMethods, kDictUnsafe, kDictRefused};
    case Kind::kList:
      return {kListMethods, kListUnsafe, {}};
    case Kind::kTuple:
      return {kTupleMethods, {}, {}};
    case Kind::kRange:
      return {{}, {}, kRangeRefused};
    case Kind::kView:
      return {{}, {}, kViewRefused};
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kWideInt:
    case Kind::kFloat:
      return {{}, {}, kNumberRefused};
    case Kind::kMacro:
      return {{}, {}, kMacroRefused};
    default:
      return {};
  }
}

bool IsIn(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::StatusOr<Value> CallDictMethod(const MethodObject& method, const Arguments& arguments) {
  if (method.name == "get") {
    HEARTH_ASSIGN_OR_RETURN(
        const BoundArguments bound,
        Bind(arguments, {.params = {"key", "default"}, .required_count = 1}, "get()"));
    HEARTH_RETURN_IF_ERROR(CheckHashable(bound[0]));
    const Value* found = method.self.AsDict().Find(bound[0]);
    if (found != nullptr) return *found;
    return bound.Has(1) ? bound[1] : Value::None();
  }
  HEARTH_RETURN_IF_ERROR(Bind(arguments, {}, absl::StrCat(method.name, "()")).status());
  if (method.name == "copy") return method.self;
  return Value::View(method.self, method.name == "keys"     ? ViewKind::kKeys
                                  : method.name == "values" ? ViewKind::kValues
                                                            : ViewKind::kItems);
}

absl::StatusOr<Value> CallSequenceMethod(Budget& budget, const MethodObject& method,
                                         const Arguments& arguments) {
  if (method.name == "copy") {
    HEARTH_RETURN_IF_ERROR(Bind(arguments, {}, "copy()").status());
    return method.self;
  }
  HEARTH_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      Bind(arguments, {.params = {"value"}, .required_count = 1}, absl::StrCat(method.name, "()")));
  const std::vector<Value>& items = method.self.AsSequence();
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(method.self.extent().weight));
  const auto equals = [&bound](const Value& item) { return Equals(item, bound[0]); };
  if (method.name == "count") {
    return Value::Int(std::count_if(items.begin(), items.end(), equals));
  }
  const auto found = std::find_if(items.begin(), items.end(), equals);
  if (found == items.end()) return absl::InvalidArgumentError("index(): the value is not there");
  return Value::Int(found - items.begin());
}

}  // namespace

MethodStatus LookUpMethod(const Value& self, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) return MethodStatus::kUnsafe;
  const TypeMethods methods = MethodsOf(self);
  if (IsIn(methods.supported, name)) return MethodStatus::kSupported;
  if (IsIn(methods.unsafe, name)) return MethodStatus::kUnsafe;
  if (IsIn(methods.refused, name)) return MethodStatus::kUnsupported;
  return MethodStatus::kNone;
}

bool IsRefusedMethod(std::string_view name) {
  return IsIn(kStringRefused, name) || IsIn(kDictRefused, name);
}

absl::StatusOr<Value> CallMethod(Budget& budget, const MethodObject& method,
                                 const Arguments& arguments) {
  if (method.self.IsString()) return CallStringMethod(budget, method, arguments);
  if (method.self.IsDict()) return CallDictMethod(method, arguments);
  return CallSequenceMethod(budget, method, arguments);
}

}  // namespace hearth::jinja
