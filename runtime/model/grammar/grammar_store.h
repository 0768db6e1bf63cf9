// Constrained decoding for one tokenizer: what a request asks for (a JSON schema, any JSON object,
// a tool call) becomes a TokenConstraint. Compiled grammars and the masks that all of them share
// are kept, so that the next request of the same shape starts at once. Any number of threads may
// use one store at once; each constraint belongs to one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/base/units.h"
#include "runtime/model/sampling/token_constraint.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// Where whitespace may stand inside a JSON value. Every gap is bounded: no answer can be made of
// whitespace alone.
enum class JsonWhitespace : uint8_t {
  kNone,          // {"a":1,"b":[2,3]}
  kSingleSpaces,  // as kNone, or with one space after a comma or a colon
  kIndented,  // as kSingleSpaces, or a line break and at most 64 spaces in front of a member, an
              // item or a closing bracket
};

// In which order the members of an object come that a schema's `properties` names.
enum class PropertyOrder : uint8_t {
  kSchema,  // as the schema lists them; those that are not required may be left out
  kAny,     // any, each at most once; at most 64 properties per object
};

struct GrammarOptions {
  JsonWhitespace whitespace = JsonWhitespace::kSingleSpaces;
  PropertyOrder order = PropertyOrder::kSchema;
  // Line breaks that may stand in front of the value: models write two after their reasoning part.
  uint32_t leading_newlines = 2;
};

struct ToolSignature {
  std::string name;
  std::string parameters_json;  // the JSON schema of an object; empty: any name and text
};

class GrammarStore {
 public:
  struct Options {
    GrammarOptions grammar;
    std::vector<TokenId> stop_tokens;   // allowed where the value is complete; at least one
    uint32_t vocab_count = 0;           // of the model's choices; 0: the tokenizer's
    uint64_t grammars_bytes = 32_MiB;   // of compiled grammars with their masks that are kept
    uint64_t constraint_bytes = 4_MiB;  // of states and masks that one constraint keeps
  };

  // InvalidArgument: no stop token, one outside the vocabulary, or a vocabulary in which some byte
  // has no token of its own (such a vocabulary could come to a place where nothing is allowed).
  // The tokenizer is not needed afterwards. Takes a quarter of a second for 250,000 tokens.
  static absl::StatusOr<std::unique_ptr<GrammarStore>> Create(const Tokenizer& tokenizer,
                                                              Options options);
  ~GrammarStore();
  GrammarStore(const GrammarStore&) = delete;
  GrammarStore& operator=(const GrammarStore&) = delete;

  // response_format json_schema. InvalidArgument names the place by its JSON pointer and says what
  // is wrong; Unimplemented likewise for a keyword that is not supported (none is ignored, but for
  // annotations such as title); ResourceExhausted says which limit the schema is beyond. Which
  // keywords are supported: json_schema.h.
  absl::StatusOr<std::shared_ptr<TokenConstraint>> ForSchema(std::string_view schema_json);

  // response_format json_object: any object, of any depth up to the limit.
  absl::StatusOr<std::shared_ptr<TokenConstraint>> ForAnyObject();

  // One call of one of `tools`, or several calls one after another:
  //   <tool_call>\n<function=NAME>\n<parameter=P>\nVALUE\n</parameter>\n</function>\n</tool_call>
  // where VALUE is raw text for a string and JSON for all else. Where the tokenizer has added
  // tokens for <tool_call> and </tool_call> those are what is written. Errors as ForSchema; a
  // pointer begins with the tool's name.
  absl::StatusOr<std::shared_ptr<TokenConstraint>> ForToolCalls(
      std::span<const ToolSignature> tools, bool several);

 private:
  struct Data;
  explicit GrammarStore(std::unique_ptr<Data> data);

  std::unique_ptr<Data> data_;
};

}  // namespace hearth
