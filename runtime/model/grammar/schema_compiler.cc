// Which schemas hold together, and what all of them say.
#include "runtime/model/grammar/schema_compiler.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/grammar/regex.h"

namespace hearth::grammar {
namespace {

constexpr uint32_t kCompileDepthMax = 400;    // lists of schemas inside each other
constexpr uint32_t kReferenceDepthMax = 400;  // references and alternatives one after another
constexpr size_t kConjunctionsMax = 20'000;   // of one document
constexpr size_t kAlternativesMax = 1000;     // of one anyOf

NodeId MustLeaf(GrammarBuilder& builder, const char* pattern) {
  const absl::StatusOr<Regex> regex = Regex::Parse(pattern);
  HEARTH_CHECK(regex.ok());
  Nfa nfa;
  const Nfa::State start = nfa.AddState();
  const Nfa::State accept = regex->AddTo(nfa, start, TextEncoding::kRaw);
  absl::StatusOr<std::optional<Dfa>> dfa = nfa.ToDfa(start, accept);
  HEARTH_CHECK(dfa.ok() && dfa->has_value());
  return builder.Leaf(std::make_shared<const Dfa>(**std::move(dfa)));
}

bool SaysNothing(const SchemaRules& rules) {
  const auto is_default = [](const NumberRules& n) {
    return !n.least.has_value() && !n.most.has_value() && !n.multiple_of.has_value();
  };
  return !rules.never && !rules.says_type && !rules.values.has_value() && rules.patterns.empty() &&
         rules.length_min == 0 && rules.length_max == UINT32_MAX && is_default(rules.number) &&
         !rules.says_object && !rules.says_array;
}

template <class T>
void AddOnce(std::vector<T>& list, T item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

void Tighten(std::optional<DecimalBound>& bound, const std::optional<DecimalBound>& other,
             int tighter) {
  if (!other.has_value()) return;
  const int order = bound.has_value() ? Compare(other->value, bound->value) * tighter : 1;
  if (order > 0 || (order == 0 && other->exclusive)) bound = other;
}

// Where no type is named, what is said of objects (arrays) means that one is wanted.
TypeSet ImpliedTypes(const std::vector<const SchemaRules*>& parts) {
  bool object = false;
  bool array = false;
  bool other = false;
  for (const SchemaRules* part : parts) {
    if (part->says_type || part->values.has_value()) return kTypeAny;
    object = object || part->says_object;
    array = array || part->says_array;
    other = other || !part->patterns.empty() || part->length_min > 0 ||
            part->number.least.has_value() || part->number.most.has_value();
  }
  if (object && !array && !other) return kTypeObject;
  if (array && !object && !other) return kTypeArray;
  return kTypeAny;
}

}  // namespace

JsonSyntax::JsonSyntax(GrammarBuilder& builder, const CommonLeaves& leaves,
                       JsonWhitespace whitespace) {
  any_name = builder.Leaf(leaves.json_string);
  const bool indented = whitespace == JsonWhitespace::kIndented;
  open_object = MustLeaf(builder, indented ? "^\\{(\n {0,64})?$" : "^\\{$");
  close_object = MustLeaf(builder, indented ? "^(\n {0,64})?\\}$" : "^\\}$");
  open_array = MustLeaf(builder, indented ? "^\\[(\n {0,64})?$" : "^\\[$");
  close_array = MustLeaf(builder, indented ? "^(\n {0,64})?\\]$" : "^\\]$");
  if (whitespace == JsonWhitespace::kNone) {
    separator = builder.Literal(",");
    colon_gap = kNoNode;
    return;
  }
  separator = MustLeaf(builder, indented ? "^,( |\n {0,64})?$" : "^, ?$");
  colon_gap = MustLeaf(builder, "^ ?$");
}

SchemaCompiler::SchemaCompiler(SchemaDocument& document, GrammarBuilder& builder,
                               const CommonLeaves& leaves, const JsonSyntax& syntax,
                               PropertyOrder order)
    : document_(document), builder_(builder), leaves_(leaves), syntax_(syntax), order_(order) {}

absl::Status SchemaCompiler::At(SchemaRef place, const absl::Status& status) const {
  if (status.ok() || place == nullptr) return status;
  return Annotate(status, document_.PointerTo(place));
}

absl::StatusOr<NodeId> SchemaCompiler::Compile(SchemaForm form) {
  Conjunction root;
  root.schemas.push_back(document_.root());
  root.form = form;
  return CompileAll(std::move(root));
}

// A schema that must hold for a value so that it itself holds for the same value says nothing.
absl::Status SchemaCompiler::CheckForLoops(SchemaRef schema, uint32_t depth) {
  const auto [it, is_new] = checked_.emplace(schema, false);
  if (!is_new) {
    if (it->second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(document_.PointerTo(schema),
                     ": the schema refers to itself with no property and no item in between"));
  }
  if (depth > kReferenceDepthMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(document_.PointerTo(schema), ": over ", kReferenceDepthMax,
                     " references and alternatives lead here one after another"));
  }
  HEARTH_ASSIGN_OR_RETURN(const SchemaRules* rules, document_.RulesOf(schema));
  for (const SchemaRef part : rules->all_of) {
    HEARTH_RETURN_IF_ERROR(CheckForLoops(part, depth + 1));
  }
  for (const std::vector<SchemaRef>& alternatives : rules->any_of) {
    if (alternatives.size() > kAlternativesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(document_.PointerTo(schema), ": ", alternatives.size(),
                       " alternatives; at most ", kAlternativesMax));
    }
    for (const SchemaRef part : alternatives) {
      HEARTH_RETURN_IF_ERROR(CheckForLoops(part, depth + 1));
    }
  }
  checked_[schema] = true;
  return absl::OkStatus();
}

// Adds what allOf and $ref bring in, and leaves out what then says nothing more.
absl::Status SchemaCompiler::Expand(Conjunction& schemas) {
  std::vector<SchemaRef> all = schemas.schemas;
  for (size_t i = 0; i < all.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(CheckForLoops(all[i], 0));
    HEARTH_ASSIGN_OR_RETURN(const SchemaRules* rules, document_.RulesOf(all[i]));
    for (const SchemaRef part : rules->all_of) AddOnce(all, part);
  }
  std::vector<AnyOf> taken;
  schemas.schemas.clear();
  for (const SchemaRef schema : all) {
    HEARTH_ASSIGN_OR_RETURN(const SchemaRules* rules, document_.RulesOf(schema));
    std::vector<AnyOf> of_this;
    for (const std::vector<SchemaRef>& alternatives : rules->any_of) {
      if (std::binary_search(schemas.taken.begin(), schemas.taken.end(), &alternatives)) {
        of_this.push_back(&alternatives);
      }
    }
    if (SaysNothing(*rules) && of_this.size() == rules->any_of.size()) continue;
    schemas.schemas.push_back(schema);
    taken.insert(taken.end(), of_this.begin(), of_this.end());
  }
  std::sort(taken.begin(), taken.end());
  schemas.taken = std::move(taken);
  return absl::OkStatus();
}

absl::StatusOr<NodeId> SchemaCompiler::CompileAll(Conjunction schemas) {
  HEARTH_RETURN_IF_ERROR(Expand(schemas));
  const SchemaRef place = schemas.schemas.empty() ? nullptr : schemas.schemas[0];
  if (compiled_.size() >= kConjunctionsMax || depth_ >= kCompileDepthMax) {
    return At(place, absl::ResourceExhaustedError(
                         "the schema's alternatives and references combine to too many schemas"));
  }
  HEARTH_RETURN_IF_ERROR(At(place, builder_.status()));
  const auto [it, is_new] = compiled_.try_emplace(schemas);
  Compiled& compiled = it->second;  // maps keep their entries in place
  if (!is_new) {
    if (compiled.node != kNoNode) return compiled.node;
    if (compiled.reserved == kNoNode) compiled.reserved = builder_.Reserve();
    return compiled.reserved;
  }
  ++depth_;
  absl::StatusOr<NodeId> node = CompileExpanded(schemas);
  --depth_;
  HEARTH_RETURN_IF_ERROR(node.status());
  compiled.node = *node;
  if (compiled.reserved != kNoNode) builder_.Fill(compiled.reserved, *node);
  return *node;
}

absl::StatusOr<NodeId> SchemaCompiler::CompileExpanded(const Conjunction& schemas) {
  for (const SchemaRef schema : schemas.schemas) {
    HEARTH_ASSIGN_OR_RETURN(const SchemaRules* rules, document_.RulesOf(schema));
    for (const std::vector<SchemaRef>& alternatives : rules->any_of) {
      if (std::binary_search(schemas.taken.begin(), schemas.taken.end(), &alternatives)) continue;
      std::vector<NodeId> nodes;
      for (const SchemaRef alternative : alternatives) {
        Conjunction taken = schemas;
        AddOnce(taken.schemas, alternative);
        taken.taken.insert(std::upper_bound(taken.taken.begin(), taken.taken.end(), &alternatives),
                           &alternatives);
        HEARTH_ASSIGN_OR_RETURN(const NodeId node, CompileAll(std::move(taken)));
        nodes.push_back(node);
      }
      return builder_.Choice(std::move(nodes));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const Merged merged, Merge(schemas));
  if (merged.types == 0) return builder_.Never();
  return merged.values.has_value() ? CompileValues(merged) : CompileTypes(merged);
}

absl::Status SchemaCompiler::MergeNumbers(const SchemaRules& part, Merged& merged) const {
  Tighten(merged.number.least, part.number.least, 1);
  Tighten(merged.number.most, part.number.most, -1);
  if (!part.number.multiple_of.has_value()) return absl::OkStatus();
  const int64_t multiple =
      std::lcm(*part.number.multiple_of, merged.number.multiple_of.value_or(1));
  if (multiple > kMultipleMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("multipleOf of ", multiple, " together; at most ", kMultipleMax));
  }
  merged.number.multiple_of = multiple;
  return absl::OkStatus();
}

absl::StatusOr<SchemaCompiler::Merged> SchemaCompiler::Merge(const Conjunction& schemas) {
  Merged merged;
  merged.form = schemas.form;
  merged.place = schemas.schemas.empty() ? document_.root() : schemas.schemas[0];
  for (const SchemaRef schema : schemas.schemas) {
    HEARTH_ASSIGN_OR_RETURN(const SchemaRules* part, document_.RulesOf(schema));
    merged.parts.push_back(part);
    merged.types &= part->never ? TypeSet{0} : part->types;
    for (const std::string& pattern : part->patterns) {
      AddOnce(merged.text.patterns, pattern);
    }
    merged.text.length_min = std::max(merged.text.length_min, part->length_min);
    merged.text.length_max = std::min(merged.text.length_max, part->length_max);
    HEARTH_RETURN_IF_ERROR(At(schema, MergeNumbers(*part, merged)));
    if (!part->values.has_value()) continue;
    if (!merged.values.has_value()) {
      merged.values = part->values;
      continue;
    }
    std::erase_if(*merged.values, [&](const SchemaJson* value) {
      return std::none_of(part->values->begin(), part->values->end(),
                          [&](const SchemaJson* other) { return *other == *value; });
    });
  }
  merged.types &= ImpliedTypes(merged.parts);
  return merged;
}

NodeId SchemaCompiler::Json(NodeId value, const Merged& merged) {
  if (merged.form == SchemaForm::kValue || value == builder_.Never()) return value;
  return builder_.Sequence({value, builder_.Literal(kRawEnd)});
}

absl::StatusOr<NodeId> SchemaCompiler::CompileTypes(const Merged& merged) {
  if (merged.form == SchemaForm::kParameters) {
    if ((merged.types & kTypeObject) == 0) return builder_.Never();
    return CompileParameters(merged);
  }
  std::vector<NodeId> nodes;
  if ((merged.types & kTypeObject) != 0) {
    HEARTH_ASSIGN_OR_RETURN(const NodeId node, CompileObject(merged));
    nodes.push_back(node);
  }
  if ((merged.types & kTypeArray) != 0) {
    HEARTH_ASSIGN_OR_RETURN(const NodeId node, CompileArray(merged));
    nodes.push_back(node);
  }
  if ((merged.types & kTypeNumber) != 0) {
    HEARTH_ASSIGN_OR_RETURN(const NodeId node, CompileNumber(merged));
    nodes.push_back(node);
  }
  if ((merged.types & kTypeBoolean) != 0) {
    nodes.push_back(builder_.Literal("true"));
    nodes.push_back(builder_.Literal("false"));
  }
  if ((merged.types & kTypeNull) != 0) nodes.push_back(builder_.Literal("null"));
  for (NodeId& node : nodes) node = Json(node, merged);
  if ((merged.types & kTypeString) != 0) {
    HEARTH_ASSIGN_OR_RETURN(const NodeId node, CompileText(merged));
    nodes.push_back(node);
  }
  return builder_.Choice(std::move(nodes));
}

}  // namespace hearth::grammar
