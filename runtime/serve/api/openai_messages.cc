#include "runtime/serve/api/openai_messages.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 9> kMessageNames = {
    "role",       "content",      "name",    "reasoning_content", "reasoning",
    "tool_calls", "tool_call_id", "refusal", "annotations"};
constexpr std::array<std::string_view, 3> kCallNames = {"id", "type", "function"};
constexpr std::array<std::string_view, 1> kIndexName = {"index"};
constexpr std::array<std::string_view, 2> kCallFunctionNames = {"name", "arguments"};
constexpr std::array<std::string_view, 2> kToolNames = {"type", "function"};
constexpr std::array<std::string_view, 4> kFunctionNames = {"name", "description", "parameters",
                                                            "strict"};
constexpr std::string_view kTextOnly =
    "this server reads text only; images, audio and files are not supported";

absl::StatusOr<std::string> ReadContent(const Fields& message) {
  const Json* content = message.Find("content");
  if (content == nullptr) return std::string();
  if (content->is_string()) return content->get<std::string>();
  const std::string place = message.PlaceOf("content");
  if (!content->is_array()) return WrongType(place, "a string or a list of parts", *content);
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields part, Fields::Of((*content)[i], ElementPlace(place, i)));
    HEARTH_ASSIGN_OR_RETURN(const std::string type, part.RequiredText("type"));
    if (type == "text" || type == "input_text" || type == "output_text") {
      HEARTH_ASSIGN_OR_RETURN(const std::string piece, part.RequiredText("text"));
      text += piece;
    } else {
      return part.Error("type", kTextOnly, "unsupported_value");
    }
  }
  return text;
}

absl::StatusOr<Json> ReadArguments(const Fields& function) {
  const Json* found = function.Find("arguments");
  if (found == nullptr) return Json(Json::object());
  if (found->is_object()) return *found;
  constexpr std::string_view kExpected = "a JSON object as text";
  const std::string place = function.PlaceOf("arguments");
  if (!found->is_string()) return WrongType(place, kExpected, *found);
  const auto& text = found->get_ref<const std::string&>();
  if (text.empty()) return Json(Json::object());
  absl::StatusOr<Json> json = ParseStrictJson(text, "the text");
  if (!json.ok()) return AtField(json.status(), place);
  if (!json->is_object()) return WrongType(place, kExpected, *json);
  return json;
}

absl::Status ReadCalls(const Fields& message, ChatTurn& turn) {
  HEARTH_ASSIGN_OR_RETURN(const Json* calls, message.Array("tool_calls"));
  if (calls == nullptr) return absl::OkStatus();
  if (calls->size() > kCallsPerTurnMax) {
    return message.Error("tool_calls", absl::StrCat("expected at most ", kCallsPerTurnMax));
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(
        const Fields call, Fields::Of((*calls)[i], ElementPlace(message.PlaceOf("tool_calls"), i)));
    HEARTH_RETURN_IF_ERROR(call.Only({kCallNames, kIndexName}));
    HEARTH_RETURN_IF_ERROR(call.Choice("type", {"function"}).status());
    HEARTH_ASSIGN_OR_RETURN(const Json* json, call.Object("function"));
    if (json == nullptr) {
      return call.Error("function", "missing, expected an object", "missing_required_parameter");
    }
    HEARTH_ASSIGN_OR_RETURN(const Fields function, Fields::Of(*json, call.PlaceOf("function")));
    HEARTH_RETURN_IF_ERROR(function.Only({kCallFunctionNames}));
    PastCall past;
    HEARTH_ASSIGN_OR_RETURN(const auto id, call.Text("id"));
    past.id = id.value_or("");
    HEARTH_ASSIGN_OR_RETURN(past.name, function.RequiredText("name"));
    if (!IsToolName(past.name)) {
      return function.Error("name", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -");
    }
    HEARTH_ASSIGN_OR_RETURN(past.arguments, ReadArguments(function));
    turn.calls.push_back(std::move(past));
  }
  return absl::OkStatus();
}

absl::Status ReadAssistant(const Fields& message, ChatTurn& turn) {
  HEARTH_ASSIGN_OR_RETURN(const auto reasoning, message.Text("reasoning_content"));
  HEARTH_ASSIGN_OR_RETURN(const auto other_name, message.Text("reasoning"));
  turn.reasoning = reasoning.has_value() ? *reasoning : other_name.value_or("");
  HEARTH_ASSIGN_OR_RETURN(const auto refusal, message.Text("refusal"));
  if (refusal.has_value()) turn.content += *refusal;
  HEARTH_RETURN_IF_ERROR(ReadCalls(message, turn));
  if (turn.calls.empty() && !message.Has("content") && !refusal.has_value()) {
    return message.Error("content", "expected a text, or tool_calls beside it",
                         "missing_required_parameter");
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatTurn> ReadMessage(const Fields& message) {
  HEARTH_RETURN_IF_ERROR(message.Only({kMessageNames}));
  ChatTurn turn;
  turn.place = message.place();
  HEARTH_ASSIGN_OR_RETURN(const auto role, message.Choice("role", {"system", "developer", "user",
                                                                   "assistant", "tool"}));
  if (!role.has_value()) {
    return message.Error("role", "missing, expected a string", "missing_required_parameter");
  }
  HEARTH_ASSIGN_OR_RETURN(turn.content, ReadContent(message));
  HEARTH_ASSIGN_OR_RETURN(const auto name, message.Text("name"));
  turn.name = name.value_or("");
  if (*role == "assistant") {
    turn.role = Role::kAssistant;
    HEARTH_RETURN_IF_ERROR(ReadAssistant(message, turn));
    return turn;
  }
  for (const std::string_view only : {"reasoning_content", "reasoning", "tool_calls"}) {
    if (message.Has(only)) return message.Error(only, "belongs to assistant messages");
  }
  if (!message.Has("content")) {
    return message.Error("content", "missing, expected a string or a list of parts",
                         "missing_required_parameter");
  }
  if (*role == "tool") {
    turn.role = Role::kTool;
    HEARTH_ASSIGN_OR_RETURN(turn.call_id, message.RequiredText("tool_call_id"));
  } else if (message.Has("tool_call_id")) {
    return message.Error("tool_call_id", "belongs to tool messages");
  } else {
    turn.role = *role == "user" ? Role::kUser : Role::kSystem;
  }
  return turn;
}

}  // namespace

absl::StatusOr<std::vector<ChatTurn>> ReadOpenAiMessages(const Fields& body) {
  HEARTH_ASSIGN_OR_RETURN(const Json* messages, body.Array("messages"));
  if (messages == nullptr) {
    return body.Error("messages", "missing, expected a list", "missing_required_parameter");
  }
  if (messages->empty() || messages->size() > kTurnCountMax) {
    return body.Error("messages", absl::StrCat("expected 1 to ", kTurnCountMax, " messages, found ",
                                               messages->size()));
  }
  std::vector<ChatTurn> turns;
  for (size_t i = 0; i < messages->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields message,
                            Fields::Of((*messages)[i], ElementPlace("messages", i)));
    HEARTH_ASSIGN_OR_RETURN(ChatTurn turn, ReadMessage(message));
    turns.push_back(std::move(turn));
  }
  return turns;
}

absl::Status AddTool(const Fields& function, std::string_view schema_name, OfferedTools& tools) {
  Tool tool;
  HEARTH_ASSIGN_OR_RETURN(tool.name, function.RequiredText("name"));
  if (!IsToolName(tool.name)) {
    return function.Error("name", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -");
  }
  if (tools.set.Find(tool.name) != nullptr) {
    return function.Error("name", "two tools have the same name");
  }
  if (tools.set.tools.size() >= kToolCountMax) {
    return FieldError("tools", absl::StrCat("expected at most ", kToolCountMax, " tools"));
  }
  HEARTH_ASSIGN_OR_RETURN(const auto description, function.Text("description"));
  HEARTH_ASSIGN_OR_RETURN(const Json* schema, function.Object(schema_name));
  Json seen{{"name", tool.name}};
  if (description.has_value()) seen["description"] = *description;
  if (schema != nullptr) {
    tool.parameters_json = DumpJson(*schema);
    tool.arguments = ArgumentsOf(tool.parameters_json);
    seen["parameters"] = *schema;
  }
  Json entry{{"type", "function"}};
  entry["function"] = std::move(seen);
  tools.for_template.push_back(std::move(entry));
  tools.set.tools.push_back(std::move(tool));
  return absl::OkStatus();
}

absl::StatusOr<OfferedTools> ReadOpenAiTools(const Fields& body) {
  OfferedTools tools;
  HEARTH_ASSIGN_OR_RETURN(const Json* list, body.Array("tools"));
  if (list == nullptr) return tools;
  for (size_t i = 0; i < list->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields entry, Fields::Of((*list)[i], ElementPlace("tools", i)));
    HEARTH_RETURN_IF_ERROR(entry.Only({kToolNames}));
    HEARTH_ASSIGN_OR_RETURN(const std::string type, entry.RequiredText("type"));
    if (type != "function") {
      return entry.Error("type", "expected \"function\": this server offers no tools of its own",
                         "unsupported_value");
    }
    HEARTH_ASSIGN_OR_RETURN(const Json* json, entry.Object("function"));
    if (json == nullptr) {
      return entry.Error("function", "missing, expected an object", "missing_required_parameter");
    }
    HEARTH_ASSIGN_OR_RETURN(const Fields function, Fields::Of(*json, entry.PlaceOf("function")));
    HEARTH_RETURN_IF_ERROR(function.Only({kFunctionNames}));
    HEARTH_RETURN_IF_ERROR(function.Bool("strict").status());
    HEARTH_RETURN_IF_ERROR(AddTool(function, "parameters", tools));
  }
  return tools;
}

}  // namespace hearth
