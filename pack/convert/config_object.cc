#include "pack/convert/config_object.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr size_t kShownMax = 120;

std::string Shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

}  // namespace

ConfigObject::ConfigObject(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

const nlohmann::json* ConfigObject::Find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigObject::Missing(const char* key) {
  status_.Update(absl::InvalidArgumentError(absl::StrCat(where_, key, " is missing")));
}

void ConfigObject::Refuse(const char* key, std::string_view accepted) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return Missing(key);
  status_.Update(absl::InvalidArgumentError(
      absl::StrCat(where_, key, " is ", Shown(*value), ", accepted: ", ToAbsl(accepted))));
}

void ConfigObject::Expect(const char* key, const nlohmann::json& only) {
  const nlohmann::json* value = Find(key);
  if (value != nullptr && *value != only) Refuse(key, Shown(only));
}

uint64_t ConfigObject::Wide(const char* key, std::optional<uint64_t> if_missing) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    if (!if_missing) Missing(key);
    return if_missing.value_or(0);
  }
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  Refuse(key, "an integer, 0 or more");
  return 0;
}

uint32_t ConfigObject::Count(const char* key, std::optional<uint32_t> if_missing) {
  const uint64_t value =
      Wide(key, if_missing ? std::optional<uint64_t>(*if_missing) : std::nullopt);
  if (value <= UINT32_MAX) return static_cast<uint32_t>(value);
  Refuse(key, "an integer below 2^32");
  return 0;
}

double ConfigObject::Real(const char* key, std::optional<double> if_missing) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    if (!if_missing) Missing(key);
    return if_missing.value_or(0);
  }
  if (value->is_number()) return value->get<double>();
  Refuse(key, "a number");
  return 0;
}

bool ConfigObject::Flag(const char* key, std::optional<bool> if_missing) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    if (!if_missing) Missing(key);
    return if_missing.value_or(false);
  }
  if (value->is_boolean()) return value->get<bool>();
  Refuse(key, "true, false");
  return false;
}

std::string ConfigObject::Text(const char* key, std::optional<std::string> if_missing) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    if (!if_missing) Missing(key);
    return if_missing.value_or(std::string());
  }
  if (value->is_string()) return value->get<std::string>();
  Refuse(key, "a text");
  return std::string();
}

}  // namespace hearth
