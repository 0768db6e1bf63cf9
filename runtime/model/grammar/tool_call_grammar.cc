// A tool call is a sequence around an object whose members are parameters.
#include "runtime/model/grammar/tool_call_grammar.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/regex.h"
#include "runtime/model/grammar/schema_compiler.h"

namespace hearth::grammar {
namespace {

constexpr size_t kToolNameMax = 128;

bool IsToolName(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kToolNameMax &&
         std::all_of(name.begin(), name.end(), allowed);
}

NodeId AnyParameters(GrammarBuilder& builder, const CommonLeaves& leaves) {
  const absl::StatusOr<Regex> name = Regex::Parse("^[A-Za-z_][A-Za-z0-9_-]{0,63}$");
  HEARTH_CHECK(name.ok());
  Nfa nfa;
  const Nfa::State start = nfa.AddState();
  const Nfa::State accept = name->AddTo(nfa, start, TextEncoding::kRaw);
  absl::StatusOr<std::optional<Dfa>> dfa = nfa.ToDfa(start, accept);
  HEARTH_CHECK(dfa.ok() && dfa->has_value());
  Node node;
  node.kind = NodeKind::kObject;
  node.count_max = 1;  // two could have one name
  node.open = builder.Literal("\n");
  node.close = builder.Literal("</function>");
  node.additional.first = builder.Sequence(
      {builder.Literal("<parameter="), builder.Leaf(std::make_shared<const Dfa>(**std::move(dfa))),
       builder.Literal(">\n"), builder.Leaf(leaves.raw_text), builder.Literal("\n")});
  node.additional.next = node.additional.first;
  return builder.Add(std::move(node));
}

absl::StatusOr<NodeId> Parameters(const ToolSignature& tool, GrammarBuilder& builder,
                                  const CommonLeaves& leaves, const JsonSyntax& syntax,
                                  PropertyOrder order) {
  if (tool.parameters_json.empty()) return AnyParameters(builder, leaves);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                          SchemaDocument::Parse(tool.parameters_json));
  SchemaCompiler compiler(*document, builder, leaves, syntax, order);
  HEARTH_ASSIGN_OR_RETURN(const NodeId node, compiler.Compile(SchemaForm::kParameters));
  if (node == builder.Never()) {
    return absl::InvalidArgumentError("#: expected the schema of an object");
  }
  return node;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileToolCalls(
    std::span<const ToolSignature> tools, bool several, const ToolCallMarks& marks,
    const CommonLeaves& leaves, const GrammarOptions& options) {
  if (tools.empty() || tools.size() > kToolsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(tools.size(), " tools; expected 1 to ", kToolsMax));
  }
  GrammarBuilder builder;
  const JsonSyntax syntax(builder, leaves, options.whitespace);
  std::vector<NodeId> functions;
  for (const ToolSignature& tool : tools) {
    if (!IsToolName(tool.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tool named ", JsonQuoted(tool.name.substr(0, kToolNameMax)),
                       "; expected 1 to ", kToolNameMax, " letters, digits, '_', '-' and '.'"));
    }
    absl::StatusOr<NodeId> parameters = Parameters(tool, builder, leaves, syntax, options.order);
    if (!parameters.ok()) return Annotate(parameters.status(), tool.name);
    functions.push_back(builder.Sequence(
        {builder.Literal(absl::StrCat("<function=", tool.name, ">")), *parameters}));
  }
  const NodeId open =
      marks.open.has_value() ? builder.Token(*marks.open) : builder.Literal("<tool_call>");
  const NodeId close =
      marks.close.has_value() ? builder.Token(*marks.close) : builder.Literal("</tool_call>");
  const NodeId newline = builder.Literal("\n");
  const NodeId call = builder.Sequence({open, newline, builder.Choice(functions), newline, close});
  NodeId root = call;
  if (several) {
    const NodeId rest = builder.Reserve();
    const NodeId more = builder.Sequence({newline, call, rest});
    builder.Fill(rest, builder.Choice({builder.Literal(""), more}));
    root = builder.Sequence({call, rest});
  }
  root = builder.Sequence({LeadingNewlines(builder, options.leading_newlines), root});
  return std::move(builder).Finish(root);
}

}  // namespace hearth::grammar
