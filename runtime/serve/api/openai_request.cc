#include "runtime/serve/api/openai_request.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/sampling/logprobs.h"
#include "runtime/serve/api/call_options.h"
#include "runtime/serve/api/openai_messages.h"
#include "runtime/serve/api/reasoning_wish.h"
#include "runtime/serve/api/sampling_fields.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 3> kCommonNames = {"model", "stream", "stream_options"};
constexpr std::array<std::string_view, 8> kChatNames = {
    "messages",        "tools",    "tool_choice",  "parallel_tool_calls",
    "response_format", "logprobs", "top_logprobs", "chat_template_kwargs"};
constexpr std::array<std::string_view, 3> kCompletionNames = {"prompt", "logprobs",
                                                              "response_format"};
constexpr uint32_t kCompletionTokensDefault = 16;  // as OpenAI has it for /v1/completions
constexpr uint32_t kPromptTokensMax = 1u << 20;

absl::Status ReadStream(const Fields& body, ApiCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  call.stream = stream.value_or(false);
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("stream_options"));
  if (json == nullptr) return absl::OkStatus();
  if (!call.stream) return body.Error("stream_options", "only with \"stream\": true");
  constexpr std::array<std::string_view, 2> kNames = {"include_usage", "include_obfuscation"};
  HEARTH_ASSIGN_OR_RETURN(const Fields options, Fields::Of(*json, "stream_options"));
  HEARTH_RETURN_IF_ERROR(options.Only({kNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto usage, options.Bool("include_usage"));
  call.include_usage = usage.value_or(false);
  HEARTH_ASSIGN_OR_RETURN(const auto obfuscation, options.Bool("include_obfuscation"));
  if (!obfuscation.value_or(false)) return absl::OkStatus();
  return options.Error("include_obfuscation", "not supported", "unsupported_parameter");
}

absl::Status ReadToolChoice(const Fields& body, ToolChoice& choice) {
  HEARTH_ASSIGN_OR_RETURN(const auto parallel, body.Bool("parallel_tool_calls"));
  choice.one_call = !parallel.value_or(true);
  const Json* found = body.Find("tool_choice");
  if (found == nullptr) return absl::OkStatus();
  if (found->is_string()) {
    HEARTH_ASSIGN_OR_RETURN(const auto word,
                            body.Choice("tool_choice", {"auto", "none", "required"}));
    choice.kind = word.value_or("") == "none"       ? ToolChoice::Kind::kNone
                  : word.value_or("") == "required" ? ToolChoice::Kind::kRequired
                                                    : ToolChoice::Kind::kAuto;
    return absl::OkStatus();
  }
  constexpr std::array<std::string_view, 2> kNames = {"type", "function"};
  constexpr std::array<std::string_view, 1> kFunctionNames = {"name"};
  if (!found->is_object()) return WrongType("tool_choice", "a string or an object", *found);
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*found, "tool_choice"));
  HEARTH_RETURN_IF_ERROR(fields.Only({kNames}));
  HEARTH_RETURN_IF_ERROR(fields.Choice("type", {"function"}).status());
  HEARTH_ASSIGN_OR_RETURN(const Json* json, fields.Object("function"));
  if (json == nullptr) {
    return fields.Error("function", "missing, expected an object", "missing_required_parameter");
  }
  HEARTH_ASSIGN_OR_RETURN(const Fields function, Fields::Of(*json, "tool_choice.function"));
  HEARTH_RETURN_IF_ERROR(function.Only({kFunctionNames}));
  HEARTH_ASSIGN_OR_RETURN(choice.name, function.RequiredText("name"));
  choice.kind = ToolChoice::Kind::kNamed;
  return absl::OkStatus();
}

absl::Status ReadChatLogprobs(const Fields& body, CompletionRequest& request) {
  HEARTH_ASSIGN_OR_RETURN(const auto wants, body.Bool("logprobs"));
  request.wants_logprobs = wants.value_or(false);
  HEARTH_ASSIGN_OR_RETURN(const auto top, body.Integer("top_logprobs", {0, kTopLogprobsMax}));
  if (!top.has_value()) return absl::OkStatus();
  if (!request.wants_logprobs && *top > 0) {
    return body.Error("top_logprobs", "only with \"logprobs\": true");
  }
  request.top_logprobs = static_cast<uint32_t>(*top);
  return absl::OkStatus();
}

absl::Status ReadVariables(const Fields& body, Conversation& conversation,
                           ReasoningWish& reasoning) {
  HEARTH_ASSIGN_OR_RETURN(const Json* variables, body.Object("chat_template_kwargs"));
  if (variables == nullptr) return absl::OkStatus();
  conversation.variables = *variables;
  // Those that the server has fields for as well mean the same here.
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*variables, "chat_template_kwargs"));
  HEARTH_ASSIGN_OR_RETURN(const auto thinking, fields.Bool("enable_thinking"));
  if (!thinking.has_value()) return absl::OkStatus();
  conversation.variables.erase("enable_thinking");
  if (reasoning.enabled.has_value() && *reasoning.enabled != *thinking) {
    return fields.Error("enable_thinking", absl::StrCat("contradicts ", reasoning.place));
  }
  reasoning.enabled = thinking;
  reasoning.place = fields.PlaceOf("enable_thinking");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> TokensOf(const Json& list, const ModelFacts& facts) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& token = list[i];
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= facts.tokenizer->vocab_count()) {
      return FieldError("prompt", absl::StrCat("expected token ids from 0 to ",
                                               facts.tokenizer->vocab_count() - 1));
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

absl::Status ReadPrompt(const Fields& body, const ModelFacts& facts, ApiCall& call) {
  const Json* prompt = body.Find("prompt");
  if (prompt == nullptr) {
    return body.Error("prompt", "missing, expected a string or a list of token ids",
                      "missing_required_parameter");
  }
  const bool wrapped =
      prompt->is_array() && !prompt->empty() && !(*prompt)[0].is_number();  // ["text"], [[1, 2]]
  if (wrapped && prompt->size() > 1) {
    return body.Error("prompt", "this server answers one prompt per request", "unsupported_value");
  }
  const Json& one = wrapped ? (*prompt)[0] : *prompt;
  if (one.is_string()) {
    call.request.prompt =
        facts.tokenizer->Encode(one.get_ref<const std::string&>(), SpecialTokens::kParse);
  } else if (one.is_array() && one.size() <= kPromptTokensMax) {
    HEARTH_ASSIGN_OR_RETURN(call.request.prompt, TokensOf(one, facts));
  } else {
    return WrongType("prompt", "a string or a list of token ids", one);
  }
  if (call.request.prompt.empty()) return body.Error("prompt", "expected at least one token");
  return CheckPromptFits(call.request.prompt.size(), facts);
}

absl::Status ReadCommon(const Fields& body, const ModelFacts& facts, const CallContext& context,
                        ApiCall& call) {
  HEARTH_ASSIGN_OR_RETURN(call.model, ReadModelName(body, facts));
  HEARTH_RETURN_IF_ERROR(CheckLabels(body));
  HEARTH_RETURN_IF_ERROR(CheckFixed(body));
  HEARTH_RETURN_IF_ERROR(ReadStream(body, call));
  HEARTH_RETURN_IF_ERROR(ReadMaxTokens(body, call.request));
  return ReadSampling(body, facts, context, call.request);
}

}  // namespace

absl::StatusOr<ApiCall> ParseOpenAiChat(const Fields& body, const ModelFacts& facts,
                                        const CallContext& context) {
  HEARTH_RETURN_IF_ERROR(body.Only({kCommonNames, kChatNames, kSamplingFieldNames, kLabelFieldNames,
                                    kFixedFieldNames, kReasoningFieldNames}));
  ApiCall call;
  call.dialect = Dialect::kOpenAiChat;
  HEARTH_RETURN_IF_ERROR(ReadCommon(body, facts, context, call));
  HEARTH_RETURN_IF_ERROR(ReadChatLogprobs(body, call.request));
  ChatParts parts;
  HEARTH_ASSIGN_OR_RETURN(parts.conversation.turns, ReadOpenAiMessages(body));
  HEARTH_ASSIGN_OR_RETURN(parts.tools, ReadOpenAiTools(body));
  HEARTH_RETURN_IF_ERROR(ReadToolChoice(body, parts.choice));
  HEARTH_ASSIGN_OR_RETURN(parts.reasoning, ReadReasoning(body));
  HEARTH_RETURN_IF_ERROR(ReadVariables(body, parts.conversation, parts.reasoning));
  HEARTH_RETURN_IF_ERROR(ReadResponseFormat(body, parts));
  HEARTH_RETURN_IF_ERROR(FinishChatCall(std::move(parts), facts, call));
  return call;
}

absl::StatusOr<ApiCall> ParseOpenAiCompletion(const Fields& body, const ModelFacts& facts,
                                              const CallContext& context) {
  HEARTH_RETURN_IF_ERROR(body.Only(
      {kCommonNames, kCompletionNames, kSamplingFieldNames, kLabelFieldNames, kFixedFieldNames}));
  ApiCall call;
  call.dialect = Dialect::kOpenAiCompletion;
  HEARTH_RETURN_IF_ERROR(ReadCommon(body, facts, context, call));
  if (!call.request.max_tokens.has_value()) call.request.max_tokens = kCompletionTokensDefault;
  HEARTH_ASSIGN_OR_RETURN(const auto top, body.Integer("logprobs", {0, kTopLogprobsMax}));
  if (top.has_value()) {
    call.request.wants_logprobs = true;
    call.request.top_logprobs = static_cast<uint32_t>(*top);
  }
  ChatParts parts;  // for its response format alone
  HEARTH_RETURN_IF_ERROR(ReadResponseFormat(body, parts));
  HEARTH_RETURN_IF_ERROR(ReadPrompt(body, facts, call));
  ConstraintWish wish;
  wish.form = parts.form;
  wish.schema_json = parts.schema_json;
  HEARTH_RETURN_IF_ERROR(SetConstraint(wish, parts.form_place, facts, call.request));
  return call;
}

}  // namespace hearth
