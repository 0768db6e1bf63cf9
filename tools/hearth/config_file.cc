// toml++ reads the file; names and values are checked against the fields. Its exceptions end here.
#include "tools/hearth/config_file.h"

#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "toml++/toml.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kConfigBytesMax = 1 << 20;

std::string Quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// The field's value as TOML; empty when it has none.
std::string Literal(const Field& field) {
  if (field.kind == FieldKind::kList) {
    return absl::StrCat("[",
                        absl::StrJoin(field.items(), ", ",
                                      [](std::string* out, const std::string& item) {
                                        absl::StrAppend(out, Quoted(item));
                                      }),
                        "]");
  }
  const std::string value = field.print();
  const bool verbatim = field.kind == FieldKind::kSwitch || field.metavar == "N";
  return verbatim ? value : Quoted(value);
}

absl::Status At(const std::string& path, const toml::source_region& source, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", source.begin.line, ": ", ToAbsl(what)));
}

// A value in the form that the flag takes.
absl::StatusOr<std::string> FlagForm(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  if (node.is_integer() || node.is_floating_point()) {
    std::ostringstream out;
    node.visit([&out](const auto& value) {
      if constexpr (toml::is_number<decltype(value)>) out << value;
    });
    return out.str();
  }
  return absl::InvalidArgumentError("expected text, a number, true, false or an array of such");
}

absl::Status SetFromNode(const std::string& name, const toml::node& node,
                         std::span<const Field> fields) {
  const Field* field = FindField(fields, name);
  if (field == nullptr) return SetField(fields, name, "");  // says which is the nearest
  const toml::array* items = node.as_array();
  if (items == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::string value, FlagForm(node));
    return field->parse(value);
  }
  if (field->kind != FieldKind::kList) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": takes one value, found an array"));
  }
  for (const toml::node& item : *items) {
    HEARTH_ASSIGN_OR_RETURN(const std::string value, FlagForm(item));
    HEARTH_RETURN_IF_ERROR(field->parse(value));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ConfigFileText(std::span<const Field> fields, const GivenFields& given) {
  std::string text;
  for (const Field& field : fields) {
    const bool set = given.Has(field.name);
    absl::StrAppend(&text, set ? "" : "# ", field.name, " = ", Literal(field), "\n");
  }
  return text;
}

absl::Status ApplyConfigText(std::string_view text, const std::string& path,
                             std::span<const Field> fields, GivenFields& given) {
  try {
    const toml::table table = toml::parse(text, path);
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (node.is_table()) {
        return At(path, node.source(),
                  absl::StrCat("[", name, "]: the file is flat: keys stand without a table"));
      }
      if (given.Has(name)) continue;
      if (absl::Status status = SetFromNode(name, node, fields); !status.ok()) {
        return At(path, key.source(), ToStd(status.message()));
      }
      given.Add(name);
    }
    return absl::OkStatus();
  } catch (const toml::parse_error& error) {
    return At(path, error.source(), error.description());
  }
}

absl::Status ApplyConfigFile(const std::string& path, std::span<const Field> fields,
                             GivenFields& given) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  return ApplyConfigText(text, path, fields, given);
}

}  // namespace hearth::cli
