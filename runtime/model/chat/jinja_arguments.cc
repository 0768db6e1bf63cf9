// Argument matching.
#include "runtime/model/chat/jinja_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"

namespace hearth::jinja {

bool BoundArguments::IsTruthyAt(size_t index, bool otherwise) const {
  return Has(index) ? IsTruthy((*this)[index]) : otherwise;
}

absl::StatusOr<int64_t> BoundArguments::IntAt(size_t index, int64_t otherwise) const {
  if (!Has(index)) return otherwise;
  const Value& value = (*this)[index];
  if (value.IsIntegral()) return value.AsInt();
  if (value.IsUndefined()) return UndefinedError(value);
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(TypeName(value)), "' object cannot be interpreted as an integer"));
}

absl::StatusOr<BoundArguments> Bind(const Arguments& arguments, const Signature& signature,
                                    std::string_view what) {
  const auto end = std::find(signature.params.begin(), signature.params.end(), "");
  const auto param_count = static_cast<size_t>(end - signature.params.begin());
  BoundArguments bound;
  if (arguments.positional.size() > param_count) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), " takes at most ", param_count,
                                                   " argument(s), found ",
                                                   arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values[i] = &arguments.positional[i];
  }
  for (const KeywordArgument& keyword : arguments.keywords) {
    const auto it = std::find(signature.params.begin(), end, keyword.name);
    const auto index = static_cast<size_t>(it - signature.params.begin());
    if (it == end || bound.values[index] != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          ToAbsl(what), it == end ? " takes no argument named '" : " has two values for '",
          keyword.name, "'"));
    }
    bound.values[index] = &keyword.value;
  }
  for (size_t i = 0; i < signature.required_count; ++i) {
    if (bound.values[i] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToAbsl(what), " needs the argument '", ToAbsl(signature.params[i]), "'"));
    }
  }
  return bound;
}

}  // namespace hearth::jinja
