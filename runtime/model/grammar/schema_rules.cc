// Reads a schema keyword by keyword; none is passed over but annotations.
#include "runtime/model/grammar/schema_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/regex.h"
#include "runtime/model/grammar/text_leaves.h"

namespace hearth::grammar {
namespace {

// Say nothing about what is valid.
constexpr std::string_view kAnnotations[] = {
    "title",   "description", "default",  "examples",     "example",          "$comment",
    "$schema", "deprecated",  "readOnly", "writeOnly",    "contentMediaType", "contentEncoding",
    "$defs",   "definitions", "$id",      "externalDocs", "$anchor",          "discriminator",
    "xml"};
constexpr std::string_view kObjectKeywords[] = {"properties", "required", "additionalProperties",
                                                "minProperties", "maxProperties"};
constexpr std::string_view kArrayKeywords[] = {"items", "prefixItems", "additionalItems",
                                               "minItems", "maxItems"};
constexpr size_t kNamesMax = 1000;         // of one object
constexpr uint32_t kCountMax = 1'000'000;  // of items, members and characters as a bound

template <size_t N>
bool IsOneOf(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

struct NamedTypes {
  std::string_view name;
  TypeSet types;
};
constexpr NamedTypes kTypeNames[] = {
    {"null", kTypeNull},     {"boolean", kTypeBoolean}, {"object", kTypeObject},
    {"array", kTypeArray},   {"string", kTypeString},   {"integer", kTypeInteger},
    {"number", kTypeNumber},
};

// Reads the keywords of one schema.
class Reader {
 public:
  Reader(const SchemaDocument& document, const SchemaJson& schema, SchemaRules& rules)
      : document_(document), schema_(schema), rules_(rules) {}

  absl::Status Read() {
    for (const auto& [keyword, value] : schema_.items()) {
      HEARTH_RETURN_IF_ERROR(ReadKeyword(keyword, value));
    }
    if (nullable_) {
      if (!rules_.says_type) {
        return absl::UnimplementedError(
            absl::StrCat(document_.PointerTo(&schema_), "/nullable: only next to \"type\""));
      }
      rules_.types |= kTypeNull;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Wrong(const SchemaJson& at, std::string_view expected) const {
    std::string found = at.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    return absl::InvalidArgumentError(
        absl::StrCat(document_.PointerTo(&at), ": expected ", ToAbsl(expected), ", found ", found));
  }
  absl::Status TooMany(const SchemaJson& at) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(document_.PointerTo(&at), ": ", at.size(), " names; at most ", kNamesMax));
  }
  absl::Status At(const SchemaJson& at, const absl::Status& status) const {
    return status.ok() ? status : Annotate(status, document_.PointerTo(&at));
  }

  absl::StatusOr<uint32_t> Count(const SchemaJson& value) const {
    // A count may be written as 2.0.
    const bool whole =
        value.is_number_unsigned() ||
        (value.is_number_float() && value.get<double>() >= 0 && value.get<double>() <= kCountMax &&
         value.get<double>() == static_cast<uint32_t>(value.get<double>()));
    if (!whole) return Wrong(value, "a whole number that is not negative");
    const uint64_t count = value.is_number_float() ? static_cast<uint64_t>(value.get<double>())
                                                   : value.get<uint64_t>();
    return static_cast<uint32_t>(std::min<uint64_t>(count, kCountMax));
  }
  // A bound so high that no answer reaches it is none.
  absl::Status ReadMax(const SchemaJson& value, uint32_t& max) const {
    HEARTH_ASSIGN_OR_RETURN(const uint32_t count, Count(value));
    max = count >= kCountMax ? UINT32_MAX : count;
    return absl::OkStatus();
  }
  absl::Status ReadMin(const SchemaJson& value, uint32_t& min) const {
    HEARTH_ASSIGN_OR_RETURN(min, Count(value));
    return absl::OkStatus();
  }

  bool IsSchema(const SchemaJson& value) const { return value.is_object() || value.is_boolean(); }
  absl::Status ReadSchema(const SchemaJson& value, SchemaRef& schema) const {
    if (!IsSchema(value)) return Wrong(value, "a schema (an object, true or false)");
    schema = &value;
    return absl::OkStatus();
  }
  absl::Status ReadSchemas(const SchemaJson& value, bool may_be_empty,
                           std::vector<SchemaRef>& schemas) const {
    if (!value.is_array() || (value.empty() && !may_be_empty)) {
      return Wrong(value, "a list of schemas");
    }
    for (const SchemaJson& item : value) {
      if (!IsSchema(item)) return Wrong(item, "a schema (an object, true or false)");
      schemas.push_back(&item);
    }
    return absl::OkStatus();
  }

  absl::Status ReadKeyword(const std::string& keyword, const SchemaJson& value) {
    if (IsOneOf(keyword, kAnnotations)) return absl::OkStatus();
    if (IsOneOf(keyword, kObjectKeywords)) {
      rules_.says_object = true;
      return ReadObjectKeyword(keyword, value);
    }
    if (IsOneOf(keyword, kArrayKeywords)) {
      rules_.says_array = true;
      return ReadArrayKeyword(keyword, value);
    }
    if (keyword == "type") return ReadType(value);
    if (keyword == "nullable") {
      if (!value.is_boolean()) return Wrong(value, "true or false");
      nullable_ = value.get<bool>();
      return absl::OkStatus();
    }
    if (keyword == "enum") {
      if (!value.is_array() || value.empty()) return Wrong(value, "a list of values");
      std::vector<const SchemaJson*> values;
      for (const SchemaJson& item : value) values.push_back(&item);
      return AddValues(std::move(values));
    }
    if (keyword == "const") return AddValues({&value});
    if (keyword == "anyOf" || keyword == "oneOf") {
      return ReadSchemas(value, false, rules_.any_of.emplace_back());
    }
    if (keyword == "allOf") return ReadSchemas(value, false, rules_.all_of);
    if (keyword == "minLength") return ReadMin(value, rules_.length_min);
    if (keyword == "maxLength") return ReadMax(value, rules_.length_max);
    if (keyword == "pattern" || keyword == "format") return ReadPattern(keyword, value);
    if (keyword == "minimum" || keyword == "exclusiveMinimum") {
      return ReadBound(keyword, value, "exclusiveMinimum", rules_.number.least, 1);
    }
    if (keyword == "maximum" || keyword == "exclusiveMaximum") {
      return ReadBound(keyword, value, "exclusiveMaximum", rules_.number.most, -1);
    }
    if (keyword == "multipleOf") return ReadMultiple(value);
    if (keyword == "uniqueItems" && value.is_boolean() && !value.get<bool>()) {
      return absl::OkStatus();
    }
    if (keyword == "$ref") return absl::OkStatus();  // SchemaDocument resolves it
    return absl::UnimplementedError(absl::StrCat(
        document_.PointerTo(&value), ": this keyword is not supported in constrained decoding"));
  }

  absl::Status AddValues(std::vector<const SchemaJson*> values) {
    if (rules_.values.has_value()) {
      std::erase_if(values, [&](const SchemaJson* value) {
        return std::none_of(rules_.values->begin(), rules_.values->end(),
                            [&](const SchemaJson* other) { return *other == *value; });
      });
    }
    rules_.values = std::move(values);
    return absl::OkStatus();
  }

  absl::Status ReadType(const SchemaJson& value) {
    std::vector<const SchemaJson*> names;
    if (value.is_string()) {
      names.push_back(&value);
    } else if (value.is_array() && !value.empty()) {
      for (const SchemaJson& item : value) names.push_back(&item);
    } else {
      return Wrong(value, "a type or a list of types");
    }
    rules_.says_type = true;
    rules_.types = 0;
    for (const SchemaJson* name : names) {
      const auto known =
          std::find_if(std::begin(kTypeNames), std::end(kTypeNames), [&](const NamedTypes& type) {
            return name->is_string() && name->get_ref<const std::string&>() == type.name;
          });
      if (known == std::end(kTypeNames)) {
        return Wrong(*name, "null, boolean, object, array, string, integer or number");
      }
      rules_.types |= known->types;
    }
    return absl::OkStatus();
  }

  absl::Status ReadPattern(const std::string& keyword, const SchemaJson& value) {
    if (!value.is_string()) return Wrong(value, "a text");
    std::string pattern = value.get<std::string>();
    if (keyword == "format") {
      std::optional<std::string> known = FormatPattern(pattern);
      if (!known.has_value()) {
        return absl::UnimplementedError(
            absl::StrCat(document_.PointerTo(&value), ": format \"", pattern.substr(0, 60),
                         "\" is not supported; supported: ", SupportedFormats()));
      }
      pattern = *std::move(known);
    } else {
      HEARTH_RETURN_IF_ERROR(At(value, Regex::Parse(pattern).status()));
    }
    rules_.patterns.push_back(std::move(pattern));
    return absl::OkStatus();
  }

  static absl::StatusOr<Decimal> DecimalOf(const SchemaJson& value) {
    if (value.is_number_integer()) return Decimal::Parse(value.dump());
    std::array<char, 32> text;  // the shortest text that reads back as this number
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value.get<double>());
    return Decimal::Parse({text.data(), static_cast<size_t>(end.ptr - text.data())});
  }

  // `tighter`: 1 where the greater of two bounds holds. Draft 4 wrote the exclusive ones as
  // true or false beside the plain ones.
  absl::Status ReadBound(const std::string& keyword, const SchemaJson& value,
                         const char* exclusive_name, std::optional<DecimalBound>& bound,
                         int tighter) {
    DecimalBound found;
    found.exclusive = keyword == exclusive_name;
    if (found.exclusive && value.is_boolean()) return absl::OkStatus();
    if (!value.is_number()) return Wrong(value, "a number");
    absl::StatusOr<Decimal> decimal = DecimalOf(value);
    HEARTH_RETURN_IF_ERROR(At(value, decimal.status()));
    found.value = *std::move(decimal);
    const auto beside = schema_.find(exclusive_name);
    if (beside != schema_.end() && beside->is_boolean()) found.exclusive = beside->get<bool>();
    Tighten(bound, found, tighter);
    return absl::OkStatus();
  }

  static void Tighten(std::optional<DecimalBound>& bound, const DecimalBound& other, int tighter) {
    if (!bound.has_value()) {
      bound = other;
      return;
    }
    const int order = Compare(other.value, bound->value) * tighter;
    if (order > 0 || (order == 0 && other.exclusive)) bound = other;
  }

  absl::Status ReadMultiple(const SchemaJson& value) {
    const bool whole = value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
                       value.get<uint64_t>() <= static_cast<uint64_t>(kMultipleMax);
    if (!whole) {
      return absl::UnimplementedError(
          absl::StrCat(document_.PointerTo(&value), ": only whole numbers from 1 to ", kMultipleMax,
                       " are supported, found ", value.dump().substr(0, 60)));
    }
    rules_.number.multiple_of = value.get<int64_t>();
    return absl::OkStatus();
  }

  absl::Status ReadObjectKeyword(const std::string& keyword, const SchemaJson& value) {
    if (keyword == "minProperties") return ReadMin(value, rules_.members_min);
    if (keyword == "maxProperties") return ReadMax(value, rules_.members_max);
    if (keyword == "additionalProperties") return ReadSchema(value, rules_.additional);
    if (keyword == "properties") {
      if (!value.is_object()) return Wrong(value, "an object of schemas");
      if (value.size() > kNamesMax) return TooMany(value);
      for (const auto& [name, member] : value.items()) {
        SchemaRef schema = nullptr;
        HEARTH_RETURN_IF_ERROR(ReadSchema(member, schema));
        rules_.properties.push_back({name, schema});
      }
      return absl::OkStatus();
    }
    if (!value.is_array()) return Wrong(value, "a list of names");
    if (value.size() > kNamesMax) return TooMany(value);
    for (const SchemaJson& name : value) {
      if (!name.is_string()) return Wrong(name, "a name");
      const std::string& text = name.get_ref<const std::string&>();
      if (std::find(rules_.required.begin(), rules_.required.end(), text) ==
          rules_.required.end()) {
        rules_.required.push_back(text);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadArrayKeyword(const std::string& keyword, const SchemaJson& value) {
    if (keyword == "minItems") return ReadMin(value, rules_.items_min);
    if (keyword == "maxItems") return ReadMax(value, rules_.items_max);
    if (keyword == "prefixItems") return ReadSchemas(value, true, rules_.prefix_items);
    if (keyword == "items" && value.is_array()) {  // drafts before 2020-12
      return ReadSchemas(value, true, rules_.prefix_items);
    }
    if (keyword == "additionalItems") {
      const auto beside = schema_.find("items");
      if (beside == schema_.end() || !beside->is_array()) return absl::OkStatus();  // says nothing
    }
    return ReadSchema(value, rules_.items);
  }

  const SchemaDocument& document_;
  const SchemaJson& schema_;
  SchemaRules& rules_;
  bool nullable_ = false;
};

}  // namespace

absl::StatusOr<const SchemaRules*> SchemaDocument::RulesOf(SchemaRef schema) {
  const auto known = rules_.find(schema);
  if (known != rules_.end()) return known->second.get();
  auto rules = std::make_unique<SchemaRules>();
  if (schema->is_boolean()) {
    rules->never = !schema->get<bool>();
  } else if (!schema->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(PointerTo(schema), ": expected a schema (an object, true or false), found ",
                     schema->type_name()));
  } else {
    HEARTH_RETURN_IF_ERROR(Reader(*this, *schema, *rules).Read());
    const auto ref = schema->find("$ref");
    if (ref != schema->end()) {
      HEARTH_ASSIGN_OR_RETURN(const SchemaRef target, Resolve(*ref, PointerTo(&*ref)));
      rules->all_of.push_back(target);
    }
  }
  return rules_.emplace(schema, std::move(rules)).first->second.get();
}

}  // namespace hearth::grammar
