// From the text of a schema to a grammar.
#include "runtime/model/grammar/json_schema.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/model/grammar/schema_compiler.h"

namespace hearth::grammar {

NodeId LeadingNewlines(GrammarBuilder& builder, uint32_t count) {
  DfaBuilder newlines;
  uint32_t state = newlines.AddState(Dfa::kAccepting);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t next = newlines.AddState(Dfa::kAccepting);
    newlines.SetBytes(state, '\n', '\n', next);
    state = next;
  }
  return builder.Leaf(std::make_shared<const Dfa>(*std::move(newlines).Finish()));
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(std::string_view schema_json,
                                                                 const CommonLeaves& leaves,
                                                                 const GrammarOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                          SchemaDocument::Parse(schema_json));
  GrammarBuilder builder;
  const JsonSyntax syntax(builder, leaves, options.whitespace);
  SchemaCompiler compiler(*document, builder, leaves, syntax, options.order);
  HEARTH_ASSIGN_OR_RETURN(const NodeId value, compiler.Compile(SchemaForm::kValue));
  const NodeId root = builder.Sequence({LeadingNewlines(builder, options.leading_newlines), value});
  return std::move(builder).Finish(root);
}

}  // namespace hearth::grammar
