// JSON text to values, and values to JSON text as Python's json.dumps writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

// Keeps the order of keys; of equal keys the last value wins. `what` names the text in errors.
absl::StatusOr<Value> ParseJson(std::string_view text, std::string_view what);

struct JsonFormat {
  std::optional<std::string> indent;  // of one level; without it all is on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

// `text` as a JSON string. Bytes that are not UTF-8 stay as they are.
std::string QuoteJson(std::string_view text);

absl::StatusOr<std::string> DumpJson(const Value& value, const JsonFormat& format);

}  // namespace hearth::jinja
