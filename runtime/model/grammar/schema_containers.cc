// Arrays and objects, and objects as the parameters of a tool.
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

constexpr size_t kAnyOrderMax = 64;

bool IsFalse(SchemaRef schema) { return schema->is_boolean() && !schema->get<bool>(); }

SchemaRef FindProperty(const SchemaRules& part, const std::string& name) {
  const auto found = std::find_if(part.properties.begin(), part.properties.end(),
                                  [&](const auto& property) { return property.first == name; });
  return found == part.properties.end() ? nullptr : found->second;
}

// What each part says of the member `name`; nullopt: one forbids it.
std::optional<std::vector<SchemaRef>> SchemasOfMember(const std::vector<const SchemaRules*>& parts,
                                                      const std::string& name) {
  std::vector<SchemaRef> schemas;
  for (const SchemaRules* part : parts) {
    SchemaRef schema = FindProperty(*part, name);
    if (schema == nullptr) schema = part->additional;
    if (schema == nullptr) continue;
    if (IsFalse(schema)) return std::nullopt;
    schemas.push_back(schema);
  }
  return schemas;
}

std::optional<std::vector<SchemaRef>> SchemasOfItem(const std::vector<const SchemaRules*>& parts,
                                                    size_t index) {
  std::vector<SchemaRef> schemas;
  for (const SchemaRules* part : parts) {
    const SchemaRef schema =
        index < part->prefix_items.size() ? part->prefix_items[index] : part->items;
    if (schema == nullptr) continue;
    if (IsFalse(schema)) return std::nullopt;
    schemas.push_back(schema);
  }
  return schemas;
}

// The names that any part knows, in the order in which they come up.
std::vector<std::string> NamesOf(const std::vector<const SchemaRules*>& parts,
                                 std::vector<std::string>& required) {
  std::vector<std::string> names;
  const auto add = [](std::vector<std::string>& list, const std::string& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const SchemaRules* part : parts) {
    for (const auto& [name, schema] : part->properties) add(names, name);
  }
  for (const SchemaRules* part : parts) {
    for (const std::string& name : part->required) {
      add(required, name);
      add(names, name);
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<NodeId> SchemaCompiler::CompileArray(const Merged& merged) {
  Node node;
  node.kind = NodeKind::kArray;
  size_t prefix = 0;
  for (const SchemaRules* part : merged.parts) {
    node.count_min = std::max(node.count_min, part->items_min);
    node.count_max = std::min(node.count_max, part->items_max);
    prefix = std::max(prefix, part->prefix_items.size());
  }
  for (size_t i = 0; i <= prefix; ++i) {  // the last one is for all that follow
    std::optional<std::vector<SchemaRef>> schemas = SchemasOfItem(merged.parts, i);
    NodeId item = builder_.Never();
    if (schemas.has_value()) {
      Conjunction of_item;
      of_item.schemas = *std::move(schemas);
      HEARTH_ASSIGN_OR_RETURN(item, CompileAll(std::move(of_item)));
    }
    if (item == builder_.Never()) {
      node.count_max = std::min(node.count_max, static_cast<uint32_t>(i));
      break;
    }
    if (i < prefix) {
      node.children.push_back(item);
    } else {
      node.item = item;
    }
  }
  if (node.count_min > node.count_max) return builder_.Never();
  node.open = syntax_.open_array;
  node.separator = syntax_.separator;
  node.close = syntax_.close_array;
  return builder_.Add(std::move(node));
}

absl::StatusOr<ObjectEntry> SchemaCompiler::Member(const Merged& merged, NodeId name,
                                                   NodeId value) {
  std::vector<NodeId> first = {name};
  if (syntax_.colon_gap != kNoNode) first.push_back(syntax_.colon_gap);
  first.push_back(value);
  std::vector<NodeId> next = first;
  next.insert(next.begin(), syntax_.separator);
  ObjectEntry entry;
  entry.first = builder_.Sequence(std::move(first));
  entry.next = builder_.Sequence(std::move(next));
  HEARTH_RETURN_IF_ERROR(At(merged.place, builder_.status()));
  return entry;
}

absl::StatusOr<ObjectEntry> SchemaCompiler::Parameter(const Merged& merged, const std::string& name,
                                                      NodeId value) {
  if (name.empty() || name.size() > 256 || name.find_first_of(">\n\r") != std::string::npos) {
    return At(merged.place, absl::UnimplementedError(
                                absl::StrCat("a parameter named ", JsonQuoted(name.substr(0, 60)),
                                             " cannot be written in a tool call")));
  }
  ObjectEntry entry;
  entry.first = builder_.Sequence(
      {builder_.Literal(absl::StrCat("<parameter=", name, ">\n")), value, builder_.Literal("\n")});
  entry.next = entry.first;
  return entry;
}

absl::StatusOr<Node> SchemaCompiler::ObjectNode(const Merged& merged, SchemaForm value_form) {
  Node node;
  node.kind = NodeKind::kObject;
  node.any_order = order_ == PropertyOrder::kAny;
  std::vector<std::string> required;
  const std::vector<std::string> names = NamesOf(merged.parts, required);
  if (node.any_order && names.size() > kAnyOrderMax) {
    return At(merged.place,
              absl::ResourceExhaustedError(absl::StrCat(names.size(), " properties; at most ",
                                                        kAnyOrderMax, " in any order")));
  }
  for (const SchemaRules* part : merged.parts) {
    node.count_min = std::max(node.count_min, part->members_min);
    node.count_max = std::min(node.count_max, part->members_max);
  }
  for (const std::string& name : names) {
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    Conjunction of_member;
    of_member.form = value_form;
    std::optional<std::vector<SchemaRef>> schemas = SchemasOfMember(merged.parts, name);
    NodeId value = builder_.Never();
    if (schemas.has_value()) {
      of_member.schemas = *std::move(schemas);
      HEARTH_ASSIGN_OR_RETURN(value, CompileAll(std::move(of_member)));
    }
    absl::StatusOr<ObjectEntry> entry =
        value_form == SchemaForm::kValue
            ? Member(merged, builder_.Literal(JsonQuoted(name) + ":"), value)
            : Parameter(merged, name, value);
    HEARTH_RETURN_IF_ERROR(entry.status());
    entry->required = is_required;
    node.entries.push_back(*entry);
  }
  if (value_form == SchemaForm::kValue) {
    HEARTH_RETURN_IF_ERROR(AddFreeMembers(merged, names, node));
  }
  return node;
}

absl::Status SchemaCompiler::AddFreeMembers(const Merged& merged,
                                            const std::vector<std::string>& names, Node& node) {
  Conjunction free;
  for (const SchemaRules* part : merged.parts) {
    if (part->additional == nullptr) continue;
    if (IsFalse(part->additional)) return absl::OkStatus();
    free.schemas.push_back(part->additional);
  }
  const auto required = std::count_if(node.entries.begin(), node.entries.end(),
                                      [](const ObjectEntry& entry) { return entry.required; });
  if (node.count_min > std::max<uint32_t>(1, static_cast<uint32_t>(required))) {
    return At(merged.place, absl::UnimplementedError(
                                absl::StrCat("minProperties of ", node.count_min,
                                             " where names are free: one name could come twice")));
  }
  HEARTH_ASSIGN_OR_RETURN(const NodeId value, CompileAll(std::move(free)));
  NodeId name = syntax_.any_name;
  if (!names.empty()) {
    absl::StatusOr<Dfa> other = OtherNameDfa(names);
    HEARTH_RETURN_IF_ERROR(At(merged.place, other.status()));
    name = builder_.Leaf(std::make_shared<const Dfa>(*std::move(other)));
  }
  const NodeId with_colon = builder_.Sequence({name, builder_.Literal(":")});
  HEARTH_ASSIGN_OR_RETURN(node.additional, Member(merged, with_colon, value));
  return absl::OkStatus();
}

absl::StatusOr<NodeId> SchemaCompiler::CompileObject(const Merged& merged) {
  HEARTH_ASSIGN_OR_RETURN(Node node, ObjectNode(merged, SchemaForm::kValue));
  node.open = syntax_.open_object;
  node.close = syntax_.close_object;
  return builder_.Add(std::move(node));
}

absl::StatusOr<NodeId> SchemaCompiler::CompileParameters(const Merged& merged) {
  HEARTH_ASSIGN_OR_RETURN(Node node, ObjectNode(merged, SchemaForm::kParameterValue));
  node.open = builder_.Literal("\n");
  node.close = builder_.Literal("</function>");
  return builder_.Add(std::move(node));
}

}  // namespace hearth::grammar
