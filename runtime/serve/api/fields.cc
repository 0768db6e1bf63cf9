#include "runtime/serve/api/fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status.h"

namespace hearth {

absl::Status WrongType(std::string_view place, std::string_view expected, const Json& found) {
  return FieldError(
      place, absl::StrCat("expected ", ToAbsl(expected), ", found ", ToAbsl(DescribeJson(found))),
      "invalid_type");
}

std::string ElementPlace(std::string_view place, size_t index) {
  return absl::StrCat(ToAbsl(place), "[", index, "]");
}

absl::StatusOr<Fields> Fields::Of(const Json& json, std::string place) {
  if (!json.is_object()) {
    return WrongType(place.empty() ? "the body" : place, "an object", json);
  }
  return Fields(json, std::move(place));
}

std::string Fields::PlaceOf(std::string_view name) const {
  return place_.empty() ? std::string(name) : absl::StrCat(place_, ".", ToAbsl(name));
}

const Json* Fields::Find(std::string_view name) const {
  const auto& members = json_->get_ref<const Json::object_t&>();
  for (const auto& [key, value] : members) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

absl::Status Fields::Wrong(std::string_view name, std::string_view expected,
                           const Json& found) const {
  return WrongType(PlaceOf(name), expected, found);
}

absl::StatusOr<std::optional<bool>> Fields::Bool(std::string_view name) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) return Wrong(name, "true or false", *found);
  return found->get<bool>();
}

absl::StatusOr<std::optional<int64_t>> Fields::Integer(std::string_view name,
                                                       IntegerRange range) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  const std::string expected = absl::StrCat("an integer from ", range.min, " to ", range.max);
  if (!found->is_number_integer()) return Wrong(name, expected, *found);
  // Unsigned values that int64 does not hold are beyond every range.
  const bool huge = found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t value = huge ? INT64_MAX : found->get<int64_t>();
  if (huge || value < range.min || value > range.max) {
    return Error(name, absl::StrCat("expected ", expected, ", found ",
                                    huge ? "a greater one" : absl::StrCat(value)));
  }
  return value;
}

absl::StatusOr<std::optional<double>> Fields::Number(std::string_view name,
                                                     NumberRange range) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  const std::string expected = absl::StrFormat("a number from %g to %g", range.min, range.max);
  if (!found->is_number()) return Wrong(name, expected, *found);
  const auto value = found->get<double>();
  if (!std::isfinite(value) || !(value >= range.min && value <= range.max)) {
    return Error(name, absl::StrFormat("expected %s, found %g", expected, value));
  }
  return value;
}

absl::StatusOr<std::optional<std::string>> Fields::Text(std::string_view name) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) return Wrong(name, "a string", *found);
  return found->get<std::string>();
}

absl::StatusOr<std::optional<std::string>> Fields::Choice(
    std::string_view name, std::initializer_list<std::string_view> choices) const {
  HEARTH_ASSIGN_OR_RETURN(std::optional<std::string> text, Text(name));
  if (!text.has_value()) return text;
  for (const std::string_view choice : choices) {
    if (*text == choice) return text;
  }
  const std::string list =
      absl::StrJoin(choices, ", ", [](std::string* out, std::string_view choice) {
        absl::StrAppend(out, "\"", ToAbsl(choice), "\"");
      });
  return Error(name, absl::StrCat("expected one of ", list));
}

absl::StatusOr<std::string> Fields::RequiredText(std::string_view name) const {
  HEARTH_ASSIGN_OR_RETURN(std::optional<std::string> text, Text(name));
  if (!text.has_value()) {
    return Error(name, "missing, expected a string", "missing_required_parameter");
  }
  return *std::move(text);
}

absl::StatusOr<const Json*> Fields::Array(std::string_view name) const {
  const Json* found = Find(name);
  if (found != nullptr && !found->is_array()) return Wrong(name, "a list", *found);
  return found;
}

absl::StatusOr<const Json*> Fields::Object(std::string_view name) const {
  const Json* found = Find(name);
  if (found != nullptr && !found->is_object()) return Wrong(name, "an object", *found);
  return found;
}

absl::Status Fields::Only(std::initializer_list<std::span<const std::string_view>> known) const {
  for (const auto& [key, value] : json_->get_ref<const Json::object_t&>()) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&key = key](const auto& names) {
      return std::find(names.begin(), names.end(), key) != names.end();
    });
    if (!is_known && !value.is_null()) {
      return Error(PrintableName(key), "this server does not know the parameter",
                   "unknown_parameter");
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth
