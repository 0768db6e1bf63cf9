// What is left to decide once a request is read: the constraint on its answer and how the answer's
// text is taken apart. The same for all dialects. Only for .cc files.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/conversation.h"
#include "runtime/serve/api/openai_messages.h"
#include "runtime/serve/api/reasoning_wish.h"

namespace hearth {

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // for kNamed
  bool one_call = false;
  std::string place = "tool_choice";
};

struct ChatParts {
  Conversation conversation;  // without tools and variables of reasoning
  OfferedTools tools;
  ToolChoice choice;
  ReasoningWish reasoning;
  ConstraintWish::Form form = ConstraintWish::Form::kFree;
  std::string schema_json;  // for kJsonSchema
  std::string form_place;   // for errors
};

// Renders the prompt, makes the constraint and sets call.request.prompt, .constraint and
// call.format.
absl::Status FinishChatCall(ChatParts parts, const ModelFacts& facts, ApiCall& call);

// Makes request.constraint where `wish` needs one. `place` names the field for errors.
absl::Status SetConstraint(const ConstraintWish& wish, const std::string& place,
                           const ModelFacts& facts, CompletionRequest& request);

// The name the reply gives the model. NotFound for another model's.
absl::StatusOr<std::string> ReadModelName(const Fields& body, const ModelFacts& facts);

// response_format: text, json_object, json_schema.
absl::Status ReadResponseFormat(const Fields& body, ChatParts& parts);

}  // namespace hearth
