// The error forms of simdjson only: nothing here throws.
#include "runtime/model/tokenizer/json_checks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

constexpr size_t kShownBytesMax = 60;

// One line whatever the file holds: control characters leave as \xNN.
std::string Message(const std::string& path, const std::string& key, std::string_view expected,
                    std::string_view found) {
  const std::string raw =
      absl::StrCat(path, ": ", key, ": expected ", ToAbsl(expected), ", found ", ToAbsl(found));
  std::string shown;
  for (const char c : raw) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      absl::StrAppendFormat(&shown, "\\x%02X", static_cast<uint8_t>(c));
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

absl::Status Malformed(const std::string& path, const std::string& key, std::string_view expected,
                       std::string_view found) {
  return absl::InvalidArgumentError(Message(path, key, expected, found));
}

absl::Status NotSupported(const std::string& path, const std::string& key,
                          std::string_view expected, std::string_view found) {
  return absl::UnimplementedError(Message(path, key, expected, found));
}

std::string DescribeJson(simdjson::dom::element element) {
  std::string_view text;
  if (element.get(text) == simdjson::SUCCESS) {
    const bool is_cut = text.size() > kShownBytesMax;
    std::string shown = "\"";
    AppendReplacingBroken(text.substr(0, kShownBytesMax), shown);
    return shown + (is_cut ? "...\"" : "\"");
  }
  if (element.is_object()) return "an object";
  if (element.is_array()) return "an array";
  return simdjson::minify(element);
}

JsonObject::JsonObject(simdjson::dom::object object, std::string path, std::string key)
    : object_(object), path_(std::move(path)), key_(std::move(key)) {}

absl::StatusOr<JsonObject> JsonObject::From(simdjson::dom::element element, const std::string& path,
                                            const std::string& key) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return Malformed(path, key.empty() ? "the file" : key, "an object", DescribeJson(element));
  }
  return JsonObject(object, path, key);
}

std::string JsonObject::KeyOf(std::string_view member) const {
  return key_.empty() ? std::string(member) : absl::StrCat(key_, ".", ToAbsl(member));
}

absl::Status JsonObject::CheckMembers(std::initializer_list<std::string_view> known) const {
  std::vector<std::string_view> seen;
  for (const simdjson::dom::key_value_pair member : object_) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      std::string shown;
      AppendReplacingBroken(member.key.substr(0, kShownBytesMax), shown);
      return NotSupported(path_, KeyOf(shown), "no such member", "one");
    }
    if (std::find(seen.begin(), seen.end(), member.key) != seen.end()) {
      return Malformed(path_, KeyOf(member.key), "one member of this name", "two");
    }
    seen.push_back(member.key);
  }
  return absl::OkStatus();
}

std::optional<simdjson::dom::element> JsonObject::Find(std::string_view member) const {
  simdjson::dom::element element;
  if (object_.at_key(member).get(element) != simdjson::SUCCESS) return std::nullopt;
  if (element.is_null()) return std::nullopt;
  return element;
}

absl::Status JsonObject::Wrong(std::string_view member, std::string_view expected) const {
  const std::optional<simdjson::dom::element> found = Find(member);
  return Malformed(path_, KeyOf(member), expected, found ? DescribeJson(*found) : "nothing");
}

absl::StatusOr<std::string_view> JsonObject::String(std::string_view member) const {
  const std::optional<simdjson::dom::element> found = Find(member);
  std::string_view text;
  if (!found || found->get(text) != simdjson::SUCCESS) return Wrong(member, "a string");
  return text;
}

absl::StatusOr<bool> JsonObject::Bool(std::string_view member) const {
  const std::optional<simdjson::dom::element> found = Find(member);
  bool value = false;
  if (!found || found->get(value) != simdjson::SUCCESS) return Wrong(member, "true or false");
  return value;
}

absl::StatusOr<bool> JsonObject::BoolOr(std::string_view member, bool fallback) const {
  if (!Find(member)) return fallback;
  return Bool(member);
}

absl::StatusOr<simdjson::dom::array> JsonObject::Array(std::string_view member) const {
  const std::optional<simdjson::dom::element> found = Find(member);
  simdjson::dom::array array;
  if (!found || found->get(array) != simdjson::SUCCESS) return Wrong(member, "an array");
  return array;
}

absl::Status JsonObject::MustBeNull(std::string_view member) const {
  const std::optional<simdjson::dom::element> found = Find(member);
  if (!found) return absl::OkStatus();
  return NotSupported(path_, KeyOf(member), "null", DescribeJson(*found));
}

absl::Status JsonObject::MustBe(std::string_view member, bool value, bool fallback) const {
  HEARTH_ASSIGN_OR_RETURN(const bool found, BoolOr(member, fallback));
  if (found == value) return absl::OkStatus();
  return NotSupported(path_, KeyOf(member), value ? "true" : "false", found ? "true" : "false");
}

}  // namespace hearth
