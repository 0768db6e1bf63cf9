// Parsers and printers of the field types, and the walks over a list of fields.
#include "runtime/config/field.h"

#include <charconv>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/nearest.h"

namespace hearth {
namespace {

constexpr size_t kQuotedBytesMax = 60;  // of a refused value in a message

absl::Status Refuse(const std::string& name, std::string_view found, const std::string& accepts) {
  const bool cut = found.size() > kQuotedBytesMax;
  return absl::InvalidArgumentError(absl::StrCat(name, ": found '",
                                                 ToAbsl(found.substr(0, kQuotedBytesMax)),
                                                 cut ? "...'" : "'", ", expected ", accepts));
}

template <class T>
std::string PrintNumber(T value) {  // the shortest text that reads back as `value`
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : std::string();
}

template <class T>
bool ReadNumber(std::string_view text, const FieldHints& hints, T* value) {
  T read{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, read);
  if (error != std::errc() || rest != end) return false;
  const double as_double = static_cast<double>(read);
  if (!std::isfinite(as_double)) return false;
  if (as_double < hints.minimum || as_double > hints.maximum) return false;
  *value = read;
  return true;
}

// "a whole number", "a number from 0 to 2", "a whole number of at least 1"
std::string DescribeNumber(std::string_view noun, const FieldHints& hints) {
  std::string text(noun);
  const bool from = std::isfinite(hints.minimum);
  const bool to = std::isfinite(hints.maximum);
  if (from && to) {
    absl::StrAppend(&text, " from ", PrintNumber(hints.minimum), " to ",
                    PrintNumber(hints.maximum));
  } else if (from) {
    absl::StrAppend(&text, " of at least ", PrintNumber(hints.minimum));
  } else if (to) {
    absl::StrAppend(&text, " of at most ", PrintNumber(hints.maximum));
  }
  return text;
}

template <class T>
Field MakeNumberField(std::string_view name, T& value, std::string_view help,
                      const FieldHints& hints) {
  Field field{.name = std::string(name), .help = std::string(help), .metavar = "N"};
  field.accepts =
      DescribeNumber(std::is_floating_point_v<T> ? "a number" : "a whole number", hints);
  field.parse = [&value, hints, name = field.name, accepts = field.accepts](std::string_view text) {
    return ReadNumber(text, hints, &value) ? absl::OkStatus() : Refuse(name, text, accepts);
  };
  field.print = [&value] { return PrintNumber(value); };
  return field;
}

constexpr std::string_view kSizeForms =
    "a size with a unit, such as 24GiB, 1.5GiB, 512MiB, 64KiB or 4096B";

std::string PrintSize(uint64_t count) {  // the largest unit that divides it: exact
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (count != 0 && count % 1024 == 0 && unit + 1 < std::size(kUnits)) count /= 1024, ++unit;
  return absl::StrCat(count, ToAbsl(kUnits[unit]));
}

// T: uint64_t or an optional of it.
template <class T>
Field MakeBytesField(std::string_view name, T& value, std::string_view help) {
  Field field{.name = std::string(name), .help = std::string(help), .metavar = "SIZE"};
  field.accepts = std::string(kSizeForms);
  field.parse = [&value, name = field.name, accepts = field.accepts](std::string_view text) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
    if (!bytes.ok()) return Refuse(name, text, accepts);
    value = *bytes;
    return absl::OkStatus();
  };
  field.print = [&value] {
    const std::optional<uint64_t> bytes = value;
    return bytes ? PrintSize(*bytes) : std::string();
  };
  return field;
}

bool IsSnakeCase(std::string_view name) {
  if (name.empty() || name.front() < 'a' || name.front() > 'z' || name.back() == '_') return false;
  for (const char c : name) {
    if (c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9')) return false;
  }
  return true;
}

}  // namespace

Field MakeField(std::string_view name, bool& value, std::string_view help, const FieldHints&) {
  Field field{.name = std::string(name), .help = std::string(help), .kind = FieldKind::kSwitch};
  field.accepts = "true or false";
  field.parse = [&value, name = field.name, accepts = field.accepts](std::string_view text) {
    if (text != "true" && text != "false") return Refuse(name, text, accepts);
    value = text == "true";
    return absl::OkStatus();
  };
  field.print = [&value] { return std::string(value ? "true" : "false"); };
  return field;
}

Field MakeField(std::string_view name, std::string& value, std::string_view help,
                const FieldHints& hints) {
  Field field{.name = std::string(name), .help = std::string(help)};
  field.metavar = std::string(hints.metavar);
  field.accepts = "text";
  field.parse = [&value](std::string_view text) {
    value = std::string(text);
    return absl::OkStatus();
  };
  field.print = [&value] { return value; };
  return field;
}

Field MakeField(std::string_view name, std::vector<std::string>& value, std::string_view help,
                const FieldHints& hints) {
  Field field{.name = std::string(name), .help = std::string(help)};
  field.metavar = std::string(hints.metavar);
  field.kind = FieldKind::kList;
  field.accepts = "text that is not empty, any number of times";
  field.parse = [&value, name = field.name, accepts = field.accepts](std::string_view text) {
    if (text.empty()) return Refuse(name, text, accepts);
    value.emplace_back(text);
    return absl::OkStatus();
  };
  field.print = [&value] { return absl::StrJoin(value, " "); };
  field.items = [&value] { return value; };
  return field;
}

Field MakeField(std::string_view name, uint32_t& value, std::string_view help,
                const FieldHints& hints) {
  return MakeNumberField(name, value, help, hints);
}

Field MakeField(std::string_view name, uint64_t& value, std::string_view help,
                const FieldHints& hints) {
  if (absl::StrContains(ToAbsl(name), "bytes")) return MakeBytesField(name, value, help);
  return MakeNumberField(name, value, help, hints);
}

Field MakeField(std::string_view name, float& value, std::string_view help,
                const FieldHints& hints) {
  return MakeNumberField(name, value, help, hints);
}

Field MakeField(std::string_view name, std::optional<uint64_t>& value, std::string_view help,
                const FieldHints& hints) {
  if (hints.metavar == "SIZE") return MakeBytesField(name, value, help);
  Field field{.name = std::string(name), .help = std::string(help), .metavar = "N"};
  field.accepts = DescribeNumber("a whole number", hints);
  field.parse = [&value, hints, name = field.name, accepts = field.accepts](std::string_view text) {
    uint64_t read = 0;
    if (!ReadNumber(text, hints, &read)) return Refuse(name, text, accepts);
    value = read;
    return absl::OkStatus();
  };
  field.print = [&value] { return value.has_value() ? absl::StrCat(*value) : std::string(); };
  return field;
}

Field MakeChoiceField(std::string_view name, std::vector<std::string_view> choices,
                      std::function<void(size_t)> set, std::function<size_t()> get,
                      std::string_view help) {
  Field field{.name = std::string(name), .help = std::string(help)};
  for (const std::string_view choice : choices) {
    absl::StrAppend(&field.metavar, field.metavar.empty() ? "" : "|", ToAbsl(choice));
  }
  field.accepts = absl::StrCat("one of ", field.metavar);
  field.print = [choices, get = std::move(get)] { return std::string(choices[get()]); };
  field.parse = [choices = std::move(choices), set = std::move(set), name = field.name,
                 accepts = field.accepts](std::string_view text) {
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] != text) continue;
      set(i);
      return absl::OkStatus();
    }
    return Refuse(name, text, accepts);
  };
  return field;
}

const Field* FindField(std::span<const Field> fields, std::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

absl::Status SetField(std::span<const Field> fields, std::string_view name, std::string_view text) {
  if (const Field* field = FindField(fields, name); field != nullptr) return field->parse(text);
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  const std::string_view nearest = NearestName(name, names);
  std::string message = absl::StrCat("unknown key '", ToAbsl(name.substr(0, kQuotedBytesMax)), "'");
  if (!nearest.empty()) absl::StrAppend(&message, "; did you mean '", ToAbsl(nearest), "'?");
  return absl::InvalidArgumentError(message);
}

std::string PrintFields(std::span<const Field> fields) {
  std::string text;
  for (const Field& field : fields) absl::StrAppend(&text, field.name, " = ", field.print(), "\n");
  return text;
}

absl::Status CheckFields(std::span<const Field> fields) {
  for (const Field& field : fields) {
    if (!IsSnakeCase(field.name)) {
      return absl::InternalError(absl::StrCat("'", field.name, "' is not snake_case"));
    }
    if (FindField(fields, field.name) != &field) {
      return absl::InternalError(absl::StrCat(field.name, " is listed twice"));
    }
    if (field.help.empty() || field.help.find('\n') != std::string::npos) {
      return absl::InternalError(absl::StrCat(field.name, ": expected one line of help text"));
    }
    if (field.accepts.empty() || (field.kind != FieldKind::kSwitch && field.metavar.empty())) {
      return absl::InternalError(absl::StrCat(field.name, ": the accepted forms are not stated"));
    }
    const std::string value = field.print();
    if (field.kind == FieldKind::kList || value.empty()) continue;
    HEARTH_RETURN_IF_ERROR(Annotate(field.parse(value), "a default is outside its own bounds"));
  }
  return absl::OkStatus();
}

}  // namespace hearth
