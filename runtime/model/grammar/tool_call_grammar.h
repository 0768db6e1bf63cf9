// Tool calls in the form that the model family writes, as a grammar.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/grammar/text_leaves.h"

namespace hearth::grammar {

inline constexpr size_t kToolsMax = 256;

struct ToolCallMarks {
  std::optional<TokenId> open;   // the added token <tool_call>; none: it is spelled
  std::optional<TokenId> close;  // </tool_call>
};

// One call, or several with a line break between them. A parameter that is a string is raw text;
// such text holds no carriage return and none of kRawForbidden, and where its length is bounded no
// line break. Parameters come in the order of GrammarOptions; only those the schema names come, but
// for a tool without a schema, which takes any text under any name.
// Errors as CompileJsonSchema's, with the tool's name in front; InvalidArgument for no tool, for a
// name that is not of letters, digits, '_', '-' and '.', and for a schema of no object.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileToolCalls(
    std::span<const ToolSignature> tools, bool several, const ToolCallMarks& marks,
    const CommonLeaves& leaves, const GrammarOptions& options);

}  // namespace hearth::grammar
