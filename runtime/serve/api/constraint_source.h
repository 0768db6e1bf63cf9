// What a request wants its answer to look like, and who makes the constraint on tokens that sees to
// it. The API's dialects know no more of grammars than this.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/sampling/token_constraint.h"

namespace hearth {

// A function that the answer may or must call.
struct ToolShape {
  std::string name;
  std::string parameters_json;  // JSON schema of the arguments; empty: an object of anything
};

struct ConstraintWish {
  enum class Form : uint8_t {
    kFree,        // any text
    kJsonObject,  // one JSON object
    kJsonSchema,  // one JSON value as schema_json says
    kToolCall,    // one call or several, of `tools`, and nothing else
  };
  Form form = Form::kFree;
  std::string schema_json;       // for kJsonSchema
  std::vector<ToolShape> tools;  // for kToolCall
  bool one_call = false;         // for kToolCall: exactly one

  // Reasoning before the answer: the form holds after it.
  bool reasoning_open = false;                   // the prompt ends inside reasoning
  bool reasoning_allowed = false;                // the answer may begin with reasoning
  std::optional<uint32_t> reasoning_tokens_max;  // after so many tokens of it it is closed

  bool free() const { return form == Form::kFree && !reasoning_tokens_max.has_value(); }
};

// Any number of threads may call it at once.
class ConstraintSource {
 public:
  virtual ~ConstraintSource() = default;
  // A constraint for one request. InvalidArgument where a schema is wrong, Unimplemented where it
  // uses what is not supported: the text names the place in the schema.
  virtual absl::StatusOr<std::shared_ptr<TokenConstraint>> Make(
      const ConstraintWish& wish) const = 0;
};

}  // namespace hearth
