// Turns the schemas of a document into nodes of a grammar. What is compiled is always a list of
// schemas that hold together (allOf, $ref beside other keywords, the alternative of an anyOf that
// was taken): each such list becomes one node, however often and however deep it comes up. Only for
// .cc files: it shows nlohmann/json.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/grammar/schema_rules.h"
#include "runtime/model/grammar/text_leaves.h"

namespace hearth::grammar {

enum class SchemaForm : uint8_t {
  kValue,           // JSON
  kParameterValue,  // a tool's parameter: a string as raw text, else JSON; with kRawEnd
  kParameters,      // an object as <parameter=...> lines; with </function>
};

// The nodes that all values share.
struct JsonSyntax {
  JsonSyntax(GrammarBuilder& builder, const CommonLeaves& leaves, JsonWhitespace whitespace);

  NodeId open_object, close_object, open_array, close_array, separator;
  NodeId colon_gap;  // kNoNode: none
  NodeId any_name;   // of a member, with its quotes
};

class SchemaCompiler {
 public:
  SchemaCompiler(SchemaDocument& document, GrammarBuilder& builder, const CommonLeaves& leaves,
                 const JsonSyntax& syntax, PropertyOrder order);

  // The document's root. Errors name the place by its pointer.
  absl::StatusOr<NodeId> Compile(SchemaForm form);

 private:
  using AnyOf = const std::vector<SchemaRef>*;
  struct Conjunction {  // schemas that hold together
    std::vector<SchemaRef> schemas;
    std::vector<AnyOf> taken;  // of whose alternatives one is among the schemas; sorted
    SchemaForm form = SchemaForm::kValue;
    auto operator<=>(const Conjunction&) const = default;
  };
  struct Compiled {
    NodeId node = kNoNode;      // kNoNode: in progress
    NodeId reserved = kNoNode;  // what stands for it where it came up inside itself
  };
  struct Merged {
    std::vector<const SchemaRules*> parts;
    SchemaRef place = nullptr;  // for messages
    TypeSet types = kTypeAny;
    std::optional<std::vector<const SchemaJson*>> values;
    StringRules text;
    NumberRules number;
    SchemaForm form = SchemaForm::kValue;
  };

  absl::StatusOr<NodeId> CompileAll(Conjunction schemas);
  absl::StatusOr<NodeId> CompileExpanded(const Conjunction& schemas);
  absl::Status Expand(Conjunction& schemas);
  absl::Status CheckForLoops(SchemaRef schema, uint32_t depth);
  absl::StatusOr<Merged> Merge(const Conjunction& schemas);
  absl::Status MergeNumbers(const SchemaRules& part, Merged& merged) const;

  absl::StatusOr<NodeId> CompileTypes(const Merged& merged);
  absl::StatusOr<NodeId> CompileValues(const Merged& merged);
  absl::StatusOr<bool> Admits(const Merged& merged, const SchemaJson& value) const;
  absl::StatusOr<NodeId> CompileText(const Merged& merged);
  absl::StatusOr<NodeId> CompileNumber(const Merged& merged);
  absl::StatusOr<NodeId> CompileArray(const Merged& merged);
  absl::StatusOr<NodeId> CompileObject(const Merged& merged);
  absl::StatusOr<NodeId> CompileParameters(const Merged& merged);
  absl::StatusOr<Node> ObjectNode(const Merged& merged, SchemaForm value_form);
  absl::Status AddFreeMembers(const Merged& merged, const std::vector<std::string>& names,
                              Node& node);
  absl::StatusOr<ObjectEntry> Member(const Merged& merged, NodeId name, NodeId value);
  absl::StatusOr<ObjectEntry> Parameter(const Merged& merged, const std::string& name,
                                        NodeId value);
  NodeId Json(NodeId value, const Merged& merged);  // followed by what its form wants
  absl::Status At(SchemaRef place, const absl::Status& status) const;

  SchemaDocument& document_;
  GrammarBuilder& builder_;
  const CommonLeaves& leaves_;
  const JsonSyntax& syntax_;
  const PropertyOrder order_;
  std::map<Conjunction, Compiled> compiled_;
  std::map<SchemaRef, bool> checked_;  // true: free of loops; false: being checked
  uint32_t depth_ = 0;
};

}  // namespace hearth::grammar
