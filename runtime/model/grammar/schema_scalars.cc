// Texts, numbers and lists of values as leaves.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/schema_compiler.h"

namespace hearth::grammar {
namespace {

TypeSet TypeOf(const SchemaJson& value) {
  if (value.is_null()) return kTypeNull;
  if (value.is_boolean()) return kTypeBoolean;
  if (value.is_object()) return kTypeObject;
  if (value.is_array()) return kTypeArray;
  if (value.is_string()) return kTypeString;
  if (value.is_number_integer()) return kTypeInteger;
  const double number = value.get<double>();
  const bool whole =
      number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -9.0e18, 9.0e18)));
  return whole ? kTypeInteger : kTypeFraction;
}

uint64_t CharactersOf(const std::string& text) {
  return static_cast<uint64_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

bool WithinBounds(const NumberRules& rules, const Decimal& value) {
  if (rules.least.has_value()) {
    const int order = Compare(value, rules.least->value);
    if (order < 0 || (order == 0 && rules.least->exclusive)) return false;
  }
  if (rules.most.has_value()) {
    const int order = Compare(value, rules.most->value);
    if (order > 0 || (order == 0 && rules.most->exclusive)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<NodeId> SchemaCompiler::CompileText(const Merged& merged) {
  const StringRules& rules = merged.text;
  if (rules.length_min > rules.length_max) return builder_.Never();
  const bool raw = merged.form == SchemaForm::kParameterValue;
  if (rules.patterns.empty()) {
    const bool counted = rules.length_min > 0 || rules.length_max != UINT32_MAX;
    const std::shared_ptr<const Dfa>& plain = counted ? leaves_.raw_line : leaves_.raw_text;
    return builder_.Leaf(raw ? plain : leaves_.json_string, rules.length_min, rules.length_max);
  }
  absl::StatusOr<std::optional<Dfa>> dfa =
      PatternDfa(rules, raw ? TextEncoding::kRaw : TextEncoding::kJson);
  HEARTH_RETURN_IF_ERROR(At(merged.place, dfa.status()));
  if (!dfa->has_value()) return builder_.Never();
  return builder_.Leaf(std::make_shared<const Dfa>(**std::move(dfa)));
}

absl::StatusOr<NodeId> SchemaCompiler::CompileNumber(const Merged& merged) {
  const NumberRules& rules = merged.number;
  // A multiple of a whole number is one.
  const bool integer = (merged.types & kTypeFraction) == 0 || rules.multiple_of.has_value();
  if (!rules.least.has_value() && !rules.most.has_value() && !rules.multiple_of.has_value()) {
    return builder_.Leaf(integer ? leaves_.integer : leaves_.number);
  }
  absl::StatusOr<std::optional<Dfa>> dfa = integer ? IntegerDfa(rules) : NumberDfa(rules);
  HEARTH_RETURN_IF_ERROR(At(merged.place, dfa.status()));
  if (!dfa->has_value()) return builder_.Never();
  return builder_.Leaf(std::make_shared<const Dfa>(**std::move(dfa)));
}

// Whether a value of a list satisfies what is said beside the list.
absl::StatusOr<bool> SchemaCompiler::Admits(const Merged& merged, const SchemaJson& value) const {
  const TypeSet type = TypeOf(value);
  if ((merged.types & type) == 0) return false;
  if (value.is_object() || value.is_array()) {
    for (const SchemaRules* part : merged.parts) {
      if (value.is_object() ? part->says_object : part->says_array) {
        return absl::UnimplementedError(
            "objects and arrays in enum or const beside keywords about their contents");
      }
    }
    return true;
  }
  if (value.is_number()) {
    const absl::StatusOr<Decimal> decimal = Decimal::Parse(value.dump());
    if (!decimal.ok()) return decimal.status();
    if (!WithinBounds(merged.number, *decimal)) return false;
    if (!merged.number.multiple_of.has_value()) return true;
    if (type != kTypeInteger || !value.is_number_integer()) return type == kTypeInteger;
    return value.get<int64_t>() % *merged.number.multiple_of == 0;
  }
  if (!value.is_string()) return true;
  const std::string& text = value.get_ref<const std::string&>();
  const uint64_t characters = CharactersOf(text);
  if (characters < merged.text.length_min || characters > merged.text.length_max) return false;
  if (merged.text.patterns.empty()) return true;
  StringRules patterns;
  patterns.patterns = merged.text.patterns;
  HEARTH_ASSIGN_OR_RETURN(const std::optional<Dfa> dfa, PatternDfa(patterns, TextEncoding::kJson));
  return dfa.has_value() && dfa->Matches(JsonQuoted(text));
}

absl::StatusOr<NodeId> SchemaCompiler::CompileValues(const Merged& merged) {
  std::vector<std::string> texts;
  std::vector<std::string> raw_texts;
  for (const SchemaJson* value : *merged.values) {
    const absl::StatusOr<bool> admitted = Admits(merged, *value);
    HEARTH_RETURN_IF_ERROR(At(value, admitted.status()));
    if (!*admitted) continue;
    if (value->is_string() && merged.form == SchemaForm::kParameterValue) {
      raw_texts.push_back(value->get<std::string>());
    } else {
      texts.push_back(value->dump());
    }
  }
  if (merged.form == SchemaForm::kParameters) {
    return At(merged.place,
              absl::UnimplementedError("enum and const for all of a tool's parameters"));
  }
  std::vector<NodeId> nodes;
  for (const bool raw : {false, true}) {
    const std::vector<std::string>& of_kind = raw ? raw_texts : texts;
    if (of_kind.empty()) continue;
    absl::StatusOr<std::optional<Dfa>> dfa = OneOfDfa(of_kind, raw ? kRawEnd : "");
    HEARTH_RETURN_IF_ERROR(At(merged.place, dfa.status()));
    const NodeId leaf = builder_.Leaf(std::make_shared<const Dfa>(**std::move(dfa)));
    nodes.push_back(raw ? leaf : Json(leaf, merged));
  }
  return builder_.Choice(std::move(nodes));
}

}  // namespace hearth::grammar
