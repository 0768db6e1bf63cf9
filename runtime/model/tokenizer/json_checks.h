// Access to JSON members that names file, key, expectation and finding in every error. Only for .cc
// files: it shows simdjson.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// "<path>: <key>: expected <expected>, found <found>", for broken and for unimplemented input.
absl::Status Malformed(const std::string& path, const std::string& key, std::string_view expected,
                       std::string_view found);
absl::Status NotSupported(const std::string& path, const std::string& key,
                          std::string_view expected, std::string_view found);

// "the text \"abc\"", "an array", "17", cut to a readable length.
std::string DescribeJson(simdjson::dom::element element);

// One object of a file. `key` is its own place in the file, such as "model" or "added_tokens[3]".
class JsonObject {
 public:
  static absl::StatusOr<JsonObject> From(simdjson::dom::element element, const std::string& path,
                                         const std::string& key);

  // Refuses members that are not in `known`, and members that come twice.
  absl::Status CheckMembers(std::initializer_list<std::string_view> known) const;

  // nullopt where the member is absent or null.
  std::optional<simdjson::dom::element> Find(std::string_view member) const;
  absl::StatusOr<std::string_view> String(std::string_view member) const;
  absl::StatusOr<bool> Bool(std::string_view member) const;
  absl::StatusOr<bool> BoolOr(std::string_view member, bool fallback) const;
  absl::StatusOr<simdjson::dom::array> Array(std::string_view member) const;

  // The member must be absent or null.
  absl::Status MustBeNull(std::string_view member) const;
  // The member must be `value`; absent and null count as `fallback`.
  absl::Status MustBe(std::string_view member, bool value, bool fallback) const;

  std::string KeyOf(std::string_view member) const;
  const std::string& path() const { return path_; }
  simdjson::dom::object object() const { return object_; }

 private:
  JsonObject(simdjson::dom::object object, std::string path, std::string key);
  absl::Status Wrong(std::string_view member, std::string_view expected) const;

  simdjson::dom::object object_;
  std::string path_;
  std::string key_;
};

}  // namespace hearth
