// Typed reads from one JSON object of a configuration file. The first problem is kept and every
// later read returns a default, so that a list of reads needs one check at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace hearth {

class ConfigObject {
 public:
  // Borrows `object` (an object, or anything else, in which every key is missing). `where` stands
  // in front of keys in messages: "/models/x/config.json: text_config.".
  ConfigObject(const nlohmann::json& object, std::string where);

  // A key that holds null counts as missing; a missing key without default is an error.
  uint32_t Count(const char* key, std::optional<uint32_t> if_missing = std::nullopt);
  uint64_t Wide(const char* key, std::optional<uint64_t> if_missing = std::nullopt);
  double Real(const char* key, std::optional<double> if_missing = std::nullopt);
  bool Flag(const char* key, std::optional<bool> if_missing = std::nullopt);
  std::string Text(const char* key, std::optional<std::string> if_missing = std::nullopt);
  const nlohmann::json* Find(const char* key) const;  // null when missing

  // Records that `key` holds something that is not accepted.
  void Refuse(const char* key, std::string_view accepted);
  // Refuses `key` unless it is missing or holds this text, number or flag.
  void Expect(const char* key, const nlohmann::json& only);

  const absl::Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  void Missing(const char* key);

  const nlohmann::json& object_;
  std::string where_;
  absl::Status status_;
};

}  // namespace hearth
