#include "runtime/serve/api/call_options.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// What a call ends with: where only one is wanted, the answer ends there.
constexpr char kCallEnd[] = "</tool_call>";

using Form = ConstraintWish::Form;
using Kind = ToolChoice::Kind;

absl::Status CheckChoice(const ChatParts& parts) {
  const ToolChoice& choice = parts.choice;
  if (choice.kind == Kind::kNamed && parts.tools.set.Find(choice.name) == nullptr) {
    return FieldError(choice.place, "names a function that is not among the tools");
  }
  if (choice.kind == Kind::kRequired && parts.tools.set.tools.empty()) {
    return FieldError(choice.place, "a call is required, but there are no tools");
  }
  const bool may_call = choice.kind != Kind::kNone && !parts.tools.set.tools.empty();
  if (may_call && parts.form != Form::kFree) {
    return FieldError(parts.form_place,
                      "together with tools: not supported; give tool_choice \"none\"",
                      "unsupported_value");
  }
  return absl::OkStatus();
}

ConstraintWish WishOf(const ChatParts& parts, const RenderedPrompt& prompt,
                      const AnswerFormat& format) {
  ConstraintWish wish;
  wish.form = parts.form;
  wish.schema_json = parts.schema_json;
  if (parts.choice.kind == Kind::kRequired || parts.choice.kind == Kind::kNamed) {
    wish.form = Form::kToolCall;
    for (const Tool& tool : parts.tools.set.tools) {
      if (parts.choice.kind == Kind::kNamed && tool.name != parts.choice.name) continue;
      wish.tools.push_back({.name = tool.name, .parameters_json = tool.parameters_json});
    }
    wish.one_call = format.one_call;
  }
  wish.reasoning_open = prompt.reasoning_open;
  wish.reasoning_allowed = format.reasoning;
  if (format.reasoning) wish.reasoning_tokens_max = parts.reasoning.tokens_max;
  return wish;
}

std::string PlaceOf(const ChatParts& parts, const ConstraintWish& wish) {
  if (wish.form == Form::kToolCall) return parts.choice.place;
  if (wish.form != Form::kFree) return parts.form_place;
  return parts.reasoning.place;
}

}  // namespace

absl::Status SetConstraint(const ConstraintWish& wish, const std::string& place,
                           const ModelFacts& facts, CompletionRequest& request) {
  if (wish.free()) return absl::OkStatus();
  if (facts.constraints == nullptr) {
    return FieldError(place, "this server cannot constrain answers", "unsupported_parameter");
  }
  absl::StatusOr<std::shared_ptr<TokenConstraint>> constraint = facts.constraints->Make(wish);
  if (!constraint.ok()) return AtField(constraint.status(), place);
  request.constraint = *std::move(constraint);
  return absl::OkStatus();
}

absl::Status FinishChatCall(ChatParts parts, const ModelFacts& facts, ApiCall& call) {
  HEARTH_RETURN_IF_ERROR(CheckChoice(parts));
  HEARTH_RETURN_IF_ERROR(
      ApplyReasoning(parts.reasoning, facts.abilities, parts.conversation.variables));
  const bool may_call = parts.choice.kind != Kind::kNone && !parts.tools.set.tools.empty();
  if (may_call) parts.conversation.tools = parts.tools.for_template;
  HEARTH_ASSIGN_OR_RETURN(RenderedPrompt prompt, RenderConversation(parts.conversation, facts));
  HEARTH_RETURN_IF_ERROR(CheckPromptFits(prompt.tokens.size(), facts));
  AnswerFormat& format = call.format;
  format.reasoning = facts.abilities.reasoning && !parts.reasoning.off();
  format.reasoning_open = prompt.reasoning_open;
  format.omit_reasoning = parts.reasoning.omit;
  format.trim_beginning = parts.form != Form::kFree;
  if (may_call) {
    format.tools = std::make_shared<const ToolSet>(std::move(parts.tools.set));
    format.one_call = parts.choice.one_call || parts.choice.kind == Kind::kNamed;
    parts.tools.set = *format.tools;
  }
  const ConstraintWish wish = WishOf(parts, prompt, format);
  HEARTH_RETURN_IF_ERROR(SetConstraint(wish, PlaceOf(parts, wish), facts, call.request));
  call.client_stops = call.request.stop_strings;
  if (format.one_call && wish.form != Form::kToolCall) {
    call.request.stop_strings.emplace_back(kCallEnd);
  }
  call.request.prompt = std::move(prompt.tokens);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadModelName(const Fields& body, const ModelFacts& facts) {
  HEARTH_ASSIGN_OR_RETURN(const auto name, body.Text("model"));
  if (!name.has_value() || NamesModel(facts, *name)) return facts.id;
  return AtField(
      absl::NotFoundError(absl::StrCat("no model of that name; this server has '", facts.id, "'")),
      "model", "model_not_found");
}

absl::Status ReadResponseFormat(const Fields& body, ChatParts& parts) {
  constexpr std::array<std::string_view, 2> kNames = {"type", "json_schema"};
  constexpr std::array<std::string_view, 4> kSchemaNames = {"name", "description", "schema",
                                                            "strict"};
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("response_format"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields format, Fields::Of(*json, "response_format"));
  HEARTH_RETURN_IF_ERROR(format.Only({kNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto type,
                          format.Choice("type", {"text", "json_object", "json_schema"}));
  if (!type.has_value()) return format.Error("type", "missing", "missing_required_parameter");
  parts.form_place = "response_format";
  if (*type == "json_object") parts.form = Form::kJsonObject;
  if (*type != "json_schema") return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Json* inner, format.Object("json_schema"));
  if (inner == nullptr) {
    return format.Error("json_schema", "missing, expected an object", "missing_required_parameter");
  }
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*inner, "response_format.json_schema"));
  HEARTH_RETURN_IF_ERROR(fields.Only({kSchemaNames}));
  HEARTH_RETURN_IF_ERROR(fields.Text("name").status());
  HEARTH_RETURN_IF_ERROR(fields.Text("description").status());
  HEARTH_RETURN_IF_ERROR(fields.Bool("strict").status());
  const Json* schema = fields.Find("schema");
  if (schema == nullptr) {
    return fields.Error("schema", "missing, expected a JSON schema", "missing_required_parameter");
  }
  if (!schema->is_object() && !schema->is_boolean()) {
    return WrongType(fields.PlaceOf("schema"), "a JSON schema", *schema);
  }
  parts.form = Form::kJsonSchema;
  parts.form_place = fields.PlaceOf("schema");
  parts.schema_json = DumpJson(*schema);
  return absl::OkStatus();
}

}  // namespace hearth
