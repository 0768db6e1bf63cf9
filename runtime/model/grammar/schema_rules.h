// A JSON schema read into C++: one SchemaRules for each object that stands for a schema, checked
// keyword by keyword. Only for .cc files: it shows nlohmann/json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/model/grammar/number_leaves.h"

namespace hearth::grammar {

using SchemaJson = nlohmann::ordered_json;

// A set of JSON types.
using TypeSet = uint8_t;
inline constexpr TypeSet kTypeNull = 1;
inline constexpr TypeSet kTypeBoolean = 2;
inline constexpr TypeSet kTypeObject = 4;
inline constexpr TypeSet kTypeArray = 8;
inline constexpr TypeSet kTypeString = 16;
inline constexpr TypeSet kTypeInteger = 32;
inline constexpr TypeSet kTypeFraction = 64;  // a number that is no integer
inline constexpr TypeSet kTypeNumber = kTypeInteger | kTypeFraction;
inline constexpr TypeSet kTypeAny = 127;

// A schema inside the document.
using SchemaRef = const SchemaJson*;

struct SchemaRules {
  bool never = false;  // the schema `false`
  bool says_type = false;
  TypeSet types = kTypeAny;
  std::optional<std::vector<const SchemaJson*>> values;  // enum, const

  std::vector<std::string> patterns;  // of formats too
  uint32_t length_min = 0;
  uint32_t length_max = UINT32_MAX;
  NumberRules number;

  bool says_object = false;  // one of the keywords of objects is there
  std::vector<std::pair<std::string, SchemaRef>> properties;
  std::vector<std::string> required;
  SchemaRef additional = nullptr;  // nullptr: anything
  uint32_t members_min = 0;
  uint32_t members_max = UINT32_MAX;

  bool says_array = false;
  std::vector<SchemaRef> prefix_items;
  SchemaRef items = nullptr;  // nullptr: anything
  uint32_t items_min = 0;
  uint32_t items_max = UINT32_MAX;

  std::vector<SchemaRef> all_of;               // $ref too
  std::vector<std::vector<SchemaRef>> any_of;  // one of each
};

// The document and what was read of it. One thread.
class SchemaDocument {
 public:
  // InvalidArgument: not JSON, with the place; ResourceExhausted: beyond kSchemaBytesMax or
  // kSchemaDepthMax.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(std::string_view json);

  SchemaRef root() const { return &root_; }
  // `schema` with every keyword checked. Errors name the place by its JSON pointer.
  absl::StatusOr<const SchemaRules*> RulesOf(SchemaRef schema);
  // "#/properties/a"; "#" for the root.
  std::string PointerTo(const SchemaJson* place) const;

 private:
  SchemaDocument() = default;
  void Index(const SchemaJson& value, const SchemaJson* parent, std::string_view step);
  absl::StatusOr<SchemaRef> Resolve(const SchemaJson& ref, std::string_view pointer) const;

  struct Place {
    const SchemaJson* parent;
    std::string step;  // escaped
  };
  SchemaJson root_;
  std::map<const SchemaJson*, Place> places_;
  std::map<SchemaRef, std::unique_ptr<SchemaRules>> rules_;
};

}  // namespace hearth::grammar
