// Members of a JSON object of a request: found by name, checked for type and range, errors by their
// place in the body ("messages[2].role"). Only for .cc files: it shows nlohmann's JSON.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/api/api_error.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {

struct IntegerRange {
  int64_t min = 0;
  int64_t max = 0;
};
struct NumberRange {
  double min = 0;
  double max = 0;
};

// Borrows the JSON. Members that are absent or null are nullopt (nullptr).
class Fields {
 public:
  // InvalidArgument where it is no object. `place` is empty for the body itself.
  static absl::StatusOr<Fields> Of(const Json& json, std::string place);

  const Json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  absl::StatusOr<std::optional<bool>> Bool(std::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view name, IntegerRange range) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view name, NumberRange range) const;
  absl::StatusOr<std::optional<std::string>> Text(std::string_view name) const;
  // One of `choices`.
  absl::StatusOr<std::optional<std::string>> Choice(
      std::string_view name, std::initializer_list<std::string_view> choices) const;
  absl::StatusOr<std::string> RequiredText(std::string_view name) const;
  absl::StatusOr<const Json*> Array(std::string_view name) const;   // nullptr: absent
  absl::StatusOr<const Json*> Object(std::string_view name) const;  // nullptr: absent

  // Refuses by name every member that is in none of the lists.
  absl::Status Only(std::initializer_list<std::span<const std::string_view>> known) const;

  absl::Status Error(std::string_view name, std::string_view what,
                     std::string_view code = "") const {
    return FieldError(PlaceOf(name), what, code);
  }
  std::string PlaceOf(std::string_view name) const;
  const std::string& place() const { return place_; }
  const Json& json() const { return *json_; }

 private:
  Fields(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}
  absl::Status Wrong(std::string_view name, std::string_view expected, const Json& found) const;

  const Json* json_;
  std::string place_;
};

// "messages[2]".
std::string ElementPlace(std::string_view place, size_t index);

// InvalidArgument "<place>: expected <expected>, found <what it is>".
absl::Status WrongType(std::string_view place, std::string_view expected, const Json& found);

}  // namespace hearth
