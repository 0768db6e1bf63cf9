// One configuration field without its type: what parsing, --help, printing and tests need to know
// of it. A config struct lists its fields once, in Visit(visitor); FieldsOf(config) turns that list
// into Fields that point into `config`, which must outlive them.
//
//   struct CacheConfig {
//     uint64_t ram_bytes_max = 16_GiB;  // "bytes" in the name of a uint64_t: read and printed as a
//     size uint32_t read_depth_max = 64; template <class Visitor> void Visit(Visitor&& v) {
//       v("ram_bytes_max", ram_bytes_max, "RAM tier size");
//       v("read_depth_max", read_depth_max, "most reads in flight", {.minimum = 1, .maximum =
//       128});
//     }
//     absl::Status Validate(const GivenFields& given) const;
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"

namespace hearth {

enum class FieldKind {
  kSwitch,  // bool: no value on the command line; "true" or "false" elsewhere
  kValue,   // one value
  kList,    // std::vector<std::string>: may be given several times
};

// What a Visit list may add to a field. The bounds belong to numbers, the metavar to text.
struct FieldHints {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  std::string_view metavar = "TEXT";  // FILE, DIR...: stands for the value in --help
};

struct Field {
  std::string name;       // as in the struct: snake_case
  std::string help;       // one line, with the unit
  std::string metavar{};  // "N", "SIZE", "FILE", "reference|fast"; empty for a switch
  std::string accepts{};  // the accepted forms, for messages: "a whole number from 0 to 8"
  FieldKind kind = FieldKind::kValue;
  std::string group{};  // fields that --help shows on a page of their own; "": the main page
  std::function<absl::Status(std::string_view)> parse{};  // refuses with what was found
  std::function<std::string()> print{};  // the value as parse() reads it; empty when it has none
  std::function<std::vector<std::string>()> items{};  // of a list: what parse() was given
};

// Which fields a user wrote down, whatever the value: lets Validate() refuse a field without
// effect.
class GivenFields {
 public:
  void Add(std::string_view name) { names_.emplace(name); }
  bool Has(std::string_view name) const { return names_.contains(name); }

 private:
  std::set<std::string, std::less<>> names_;
};

// An enum is configurable when EnumEntriesOf(E{}) is found beside it and lists (value, name) pairs.
template <class E>
struct EnumEntry {
  E value;
  std::string_view name;
};

// Makers of Fields, one for each type that a config may hold. Bool, text, list, numbers:
Field MakeField(std::string_view name, bool& value, std::string_view help, const FieldHints& hints);
Field MakeField(std::string_view name, std::string& value, std::string_view help,
                const FieldHints& hints);
Field MakeField(std::string_view name, std::vector<std::string>& value, std::string_view help,
                const FieldHints& hints);
Field MakeField(std::string_view name, uint32_t& value, std::string_view help,
                const FieldHints& hints);
Field MakeField(std::string_view name, uint64_t& value, std::string_view help,
                const FieldHints& hints);
Field MakeField(std::string_view name, float& value, std::string_view help,
                const FieldHints& hints);
// An optional holds no value until one is given; with the metavar SIZE it is a size.
Field MakeField(std::string_view name, std::optional<uint64_t>& value, std::string_view help,
                const FieldHints& hints);

// An enum seen as an index into the names of its entries.
Field MakeChoiceField(std::string_view name, std::vector<std::string_view> choices,
                      std::function<void(size_t)> set, std::function<size_t()> get,
                      std::string_view help);

template <class E>
requires std::is_enum_v<E> Field MakeField(std::string_view name, E& value, std::string_view help,
                                           const FieldHints&) {
  std::vector<std::string_view> choices;
  for (const auto& entry : EnumEntriesOf(E{})) choices.push_back(entry.name);
  const auto set = [&value](size_t index) { value = EnumEntriesOf(E{})[index].value; };
  const auto get = [&value] {
    size_t index = 0;
    while (EnumEntriesOf(E{})[index].value != value) ++index;
    return index;
  };
  return MakeChoiceField(name, std::move(choices), set, get, help);
}

// The visitor that collects Fields.
struct FieldCollector {
  std::vector<Field>& fields;
  std::string group{};
  // The fields after this, up to the next call, belong to `name`.
  void Group(std::string_view name) { group = name; }
  template <class T>
  void operator()(std::string_view name, T& value, std::string_view help,
                  const FieldHints& hints = {}) const {
    fields.push_back(MakeField(name, value, help, hints));
    fields.back().group = group;
  }
};

template <class Config>
std::vector<Field> FieldsOf(Config& config) {
  std::vector<Field> fields;
  config.Visit(FieldCollector{fields});
  return fields;
}

// The field called `name`, or null.
const Field* FindField(std::span<const Field> fields, std::string_view name);

// Parses `text` into the field called `name`. An unknown name is InvalidArgument with the nearest
// one.
absl::Status SetField(std::span<const Field> fields, std::string_view name, std::string_view text);

// "name = value" lines, in the order of the list.
std::string PrintFields(std::span<const Field> fields);

// Whatever is wrong with the list itself: a missing help text, a name that is not snake_case or
// that comes twice, a default that its own parser refuses. OK for every list of ours: tests call
// it.
absl::Status CheckFields(std::span<const Field> fields);

}  // namespace hearth
