// How a schema's document is parsed and how its places are named and found.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/schema_rules.h"

namespace hearth::grammar {
namespace {

// Brackets inside brackets: what a recursive reader of the text may have to follow.
int32_t DepthOf(std::string_view json) {
  int32_t depth = 0;
  int32_t most = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      most = std::max(most, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return most;
}

std::string Escaped(std::string_view step) {  // RFC 6901
  std::string escaped;
  for (const char c : step) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// A step of a pointer in a URI's fragment. nullopt: broken escapes.
std::optional<std::string> Unescaped(std::string_view step) {
  std::string plain;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~') {
      if (i + 1 >= step.size() || (step[i + 1] != '0' && step[i + 1] != '1')) return std::nullopt;
      plain += step[++i] == '0' ? '~' : '/';
    } else if (step[i] == '%') {
      int value = 0;
      for (size_t k = 1; k <= 2; ++k) {
        const char c = i + k < step.size() ? static_cast<char>(step[i + k] | 0x20) : '?';
        const bool digit = step.size() > i + k && step[i + k] >= '0' && step[i + k] <= '9';
        if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
        value = value * 16 + (digit ? step[i + k] - '0' : c - 'a' + 10);
      }
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += step[i];
    }
  }
  return plain;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(std::string_view json) {
  if (json.size() > kSchemaBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the schema has ", json.size(), " bytes; at most ", kSchemaBytesMax));
  }
  if (DepthOf(json) > kSchemaDepthMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the schema is nested over ", kSchemaDepthMax, " deep"));
  }
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  try {
    document->root_ = SchemaJson::parse(json);
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("the schema is not JSON: ", error.what()));
  }
  document->Index(document->root_, nullptr, "");
  return document;
}

void SchemaDocument::Index(const SchemaJson& value, const SchemaJson* parent,
                           std::string_view step) {
  places_.emplace(&value, Place{parent, Escaped(step)});
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) Index(member, &value, name);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) Index(value[i], &value, std::to_string(i));
  }
}

std::string SchemaDocument::PointerTo(const SchemaJson* place) const {
  std::string pointer;
  for (const SchemaJson* at = place; at != nullptr && at != &root_;) {
    const Place& found = places_.at(at);
    pointer.insert(0, "/" + found.step);
    at = found.parent;
  }
  return "#" + pointer;
}

absl::StatusOr<SchemaRef> SchemaDocument::Resolve(const SchemaJson& ref,
                                                  std::string_view pointer) const {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(pointer), ": ", ToAbsl(what)));
  };
  if (!ref.is_string()) return wrong("expected a text");
  const std::string& text = ref.get_ref<const std::string&>();
  if (text == "#") return &root_;
  if (!text.starts_with("#/")) {
    return absl::UnimplementedError(
        absl::StrCat(ToAbsl(pointer),
                     ": only references within the document (\"#/...\") are "
                     "supported, found \"",
                     text.substr(0, 100), "\""));
  }
  SchemaRef at = &root_;
  std::string_view rest = std::string_view(text).substr(2);
  while (true) {
    const size_t slash = rest.find('/');
    const std::optional<std::string> step = Unescaped(rest.substr(0, slash));
    SchemaRef next = nullptr;
    if (step.has_value() && at->is_object()) {
      const auto found = at->find(*step);
      if (found != at->end()) next = &*found;
    } else if (step.has_value() && at->is_array()) {
      for (size_t i = 0; i < at->size(); ++i) {
        if (std::to_string(i) == *step) next = &(*at)[i];
      }
    }
    if (next == nullptr) return wrong(absl::StrCat("\"", text.substr(0, 100), "\" is not there"));
    at = next;
    if (slash == std::string_view::npos) return at;
    rest.remove_prefix(slash + 1);
  }
}

}  // namespace hearth::grammar
