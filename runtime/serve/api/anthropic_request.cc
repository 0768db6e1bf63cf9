#include "runtime/serve/api/anthropic_request.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/anthropic_messages.h"
#include "runtime/serve/api/call_options.h"
#include "runtime/serve/api/reasoning_wish.h"
#include "runtime/serve/api/sampling_fields.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 18> kNames = {
    "model",          "messages",     "system",        "max_tokens",
    "stop_sequences", "stream",       "temperature",   "top_k",
    "top_p",          "tools",        "tool_choice",   "thinking",
    "metadata",       "service_tier", "output_config", "context_management",
    "cache_control",  "speed"};
// This server's own, as in OpenAI's dialect.
constexpr std::array<std::string_view, 9> kOwnNames = {
    "seed",     "min_p",   "presence_penalty", "frequency_penalty", "repetition_penalty",
    "priority", "timeout", "cache_salt",       "ignore_eos"};

absl::Status ReadToolChoice(const Fields& body, ToolChoice& choice) {
  constexpr std::array<std::string_view, 3> kChoiceNames = {"type", "name",
                                                            "disable_parallel_tool_use"};
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("tool_choice"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, "tool_choice"));
  HEARTH_RETURN_IF_ERROR(fields.Only({kChoiceNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto type, fields.Choice("type", {"auto", "any", "tool", "none"}));
  if (!type.has_value()) return fields.Error("type", "missing", "missing_required_parameter");
  HEARTH_ASSIGN_OR_RETURN(const auto one, fields.Bool("disable_parallel_tool_use"));
  choice.one_call = one.value_or(false);
  if (*type == "none") choice.kind = ToolChoice::Kind::kNone;
  if (*type == "any") choice.kind = ToolChoice::Kind::kRequired;
  if (*type != "tool") return absl::OkStatus();
  choice.kind = ToolChoice::Kind::kNamed;
  HEARTH_ASSIGN_OR_RETURN(choice.name, fields.RequiredText("name"));
  return absl::OkStatus();
}

// output_config: {effort, format: {type: json_schema, schema}}.
absl::Status ReadOutputConfig(const Fields& body, ChatParts& parts) {
  constexpr std::array<std::string_view, 2> kConfigNames = {"effort", "format"};
  constexpr std::array<std::string_view, 2> kFormatNames = {"type", "schema"};
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("output_config"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields config, Fields::Of(*json, "output_config"));
  HEARTH_RETURN_IF_ERROR(config.Only({kConfigNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto effort,
                          config.Choice("effort", {"low", "medium", "high", "xhigh", "max"}));
  if (effort.has_value()) {
    parts.reasoning.effort = *effort == "max" ? "xhigh" : *effort;
    if (parts.reasoning.place.empty()) parts.reasoning.place = "output_config.effort";
  }
  HEARTH_ASSIGN_OR_RETURN(const Json* inner, config.Object("format"));
  if (inner == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields format, Fields::Of(*inner, "output_config.format"));
  HEARTH_RETURN_IF_ERROR(format.Only({kFormatNames}));
  HEARTH_RETURN_IF_ERROR(format.Choice("type", {"json_schema"}).status());
  HEARTH_ASSIGN_OR_RETURN(const Json* schema, format.Object("schema"));
  if (schema == nullptr) {
    return format.Error("schema", "missing, expected a JSON schema", "missing_required_parameter");
  }
  parts.form = ConstraintWish::Form::kJsonSchema;
  parts.form_place = "output_config.format.schema";
  parts.schema_json = DumpJson(*schema);
  return absl::OkStatus();
}

// Edits of the conversation by the server: none is made here, and one that keeps everything needs
// none.
absl::Status CheckContextManagement(const Fields& body) {
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("context_management"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields management, Fields::Of(*json, "context_management"));
  HEARTH_ASSIGN_OR_RETURN(const Json* edits, management.Array("edits"));
  for (size_t i = 0; edits != nullptr && i < edits->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields edit,
                            Fields::Of((*edits)[i], ElementPlace("context_management.edits", i)));
    const Json* keep = edit.Find("keep");
    if (keep != nullptr && *keep == "all") continue;
    return FieldError(edit.place(), "this server does not edit conversations",
                      "unsupported_parameter");
  }
  return absl::OkStatus();
}

absl::Status ReadAnthropicReasoning(const Fields& body, const ModelFacts& facts,
                                    ReasoningWish& wish) {
  HEARTH_RETURN_IF_ERROR(ReadThinking(body, wish));
  // Who does not ask for it expects no thinking.
  if (!body.Has("thinking") && facts.abilities.reasoning_switch) {
    wish.enabled = false;
    wish.place = "thinking";
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ApiCall> ParseAnthropic(const Fields& body, const ModelFacts& facts,
                                       const CallContext& context, MaxTokens max_tokens) {
  HEARTH_RETURN_IF_ERROR(body.Only({kNames, kOwnNames}));
  ApiCall call;
  call.dialect = Dialect::kAnthropic;
  HEARTH_ASSIGN_OR_RETURN(call.model, ReadModelName(body, facts));
  HEARTH_RETURN_IF_ERROR(CheckLabels(body));
  HEARTH_RETURN_IF_ERROR(CheckContextManagement(body));
  HEARTH_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  call.stream = stream.value_or(false);
  HEARTH_RETURN_IF_ERROR(ReadMaxTokens(body, call.request));
  if (!call.request.max_tokens.has_value() && max_tokens == MaxTokens::kRequired) {
    return body.Error("max_tokens", "missing, expected an integer, at least 1",
                      "missing_required_parameter");
  }
  HEARTH_RETURN_IF_ERROR(ReadSampling(body, facts, context, call.request));
  HEARTH_RETURN_IF_ERROR(ReadStops(body, "stop_sequences", call.request));
  ChatParts parts;
  HEARTH_ASSIGN_OR_RETURN(parts.conversation.turns, ReadAnthropicTurns(body));
  HEARTH_ASSIGN_OR_RETURN(parts.tools, ReadAnthropicTools(body));
  HEARTH_RETURN_IF_ERROR(ReadToolChoice(body, parts.choice));
  HEARTH_RETURN_IF_ERROR(ReadAnthropicReasoning(body, facts, parts.reasoning));
  HEARTH_RETURN_IF_ERROR(ReadOutputConfig(body, parts));
  HEARTH_RETURN_IF_ERROR(FinishChatCall(std::move(parts), facts, call));
  return call;
}

}  // namespace hearth
