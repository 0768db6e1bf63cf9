#include "runtime/serve/api/anthropic_messages.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 2> kMessageNames = {"role", "content"};
// What may stand in any block and changes nothing here: prefixes are reused without being asked.
constexpr std::array<std::string_view, 2> kBlockNames = {"type", "cache_control"};
constexpr std::array<std::string_view, 2> kTextNames = {"text", "citations"};
constexpr std::array<std::string_view, 4> kToolUseNames = {"id", "name", "input", "caller"};
constexpr std::array<std::string_view, 3> kToolResultNames = {"tool_use_id", "content", "is_error"};
constexpr std::array<std::string_view, 2> kThinkingNames = {"thinking", "signature"};
constexpr std::array<std::string_view, 1> kRedactedNames = {"data"};
constexpr std::array<std::string_view, 9> kToolNames = {
    "name",           "description",           "input_schema",    "type",         "strict",
    "input_examples", "eager_input_streaming", "allowed_callers", "defer_loading"};
constexpr std::string_view kTextOnly =
    "this server reads text only; images, documents and tools of the server's own are not "
    "supported";

absl::StatusOr<std::string> ReadTextBlock(const Fields& block) {
  HEARTH_RETURN_IF_ERROR(block.Only({kBlockNames, kTextNames}));
  return block.RequiredText("text");
}

// A string, or text blocks joined.
absl::StatusOr<std::string> ReadTexts(const Fields& owner, std::string_view name,
                                      std::string_view separator) {
  const Json* found = owner.Find(name);
  if (found == nullptr) return std::string();
  if (found->is_string()) return found->get<std::string>();
  const std::string place = owner.PlaceOf(name);
  if (!found->is_array()) return WrongType(place, "a string or a list of blocks", *found);
  std::string text;
  for (size_t i = 0; i < found->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields block, Fields::Of((*found)[i], ElementPlace(place, i)));
    HEARTH_ASSIGN_OR_RETURN(const std::string type, block.RequiredText("type"));
    if (type != "text") return block.Error("type", kTextOnly, "unsupported_value");
    HEARTH_ASSIGN_OR_RETURN(const std::string piece, ReadTextBlock(block));
    absl::StrAppend(&text, i > 0 ? ToAbsl(separator) : "", piece);
  }
  return text;
}

absl::Status ReadToolUse(const Fields& block, ChatTurn& turn) {
  HEARTH_RETURN_IF_ERROR(block.Only({kBlockNames, kToolUseNames}));
  PastCall call;
  HEARTH_ASSIGN_OR_RETURN(call.id, block.RequiredText("id"));
  HEARTH_ASSIGN_OR_RETURN(call.name, block.RequiredText("name"));
  if (!IsToolName(call.name)) {
    return block.Error("name", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -");
  }
  HEARTH_ASSIGN_OR_RETURN(const Json* input, block.Object("input"));
  if (input != nullptr) call.arguments = *input;
  if (turn.calls.size() >= kCallsPerTurnMax) {
    return FieldError(block.place(),
                      absl::StrCat("expected at most ", kCallsPerTurnMax, " calls in a message"));
  }
  turn.calls.push_back(std::move(call));
  return absl::OkStatus();
}

absl::Status ReadAssistantBlock(const Fields& block, ChatTurn& turn) {
  HEARTH_ASSIGN_OR_RETURN(
      const auto type, block.Choice("type", {"text", "thinking", "redacted_thinking", "tool_use"}));
  if (!type.has_value()) return block.Error("type", "missing", "missing_required_parameter");
  if (*type == "tool_use") return ReadToolUse(block, turn);
  if (*type == "redacted_thinking") return block.Only({kBlockNames, kRedactedNames});
  if (*type == "thinking") {
    HEARTH_RETURN_IF_ERROR(block.Only({kBlockNames, kThinkingNames}));
    HEARTH_ASSIGN_OR_RETURN(const std::string thinking, block.RequiredText("thinking"));
    turn.reasoning += thinking;
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadTextBlock(block));
  turn.content += text;
  return absl::OkStatus();
}

absl::StatusOr<ChatTurn> ReadToolResult(const Fields& block) {
  HEARTH_RETURN_IF_ERROR(block.Only({kBlockNames, kToolResultNames}));
  ChatTurn turn;
  turn.role = Role::kTool;
  turn.place = block.place();
  HEARTH_ASSIGN_OR_RETURN(turn.call_id, block.RequiredText("tool_use_id"));
  HEARTH_ASSIGN_OR_RETURN(turn.content, ReadTexts(block, "content", "\n"));
  HEARTH_ASSIGN_OR_RETURN(const auto is_error, block.Bool("is_error"));
  // Templates know no failed results, so the text has to say it.
  if (is_error.value_or(false)) turn.content = absl::StrCat("Error: ", turn.content);
  return turn;
}

absl::Status ReadAssistant(const Fields& message, const Json& content,
                           std::vector<ChatTurn>& turns) {
  ChatTurn turn;
  turn.role = Role::kAssistant;
  turn.place = message.place();
  if (content.is_string()) {
    turn.content = content.get<std::string>();
  } else {
    for (size_t i = 0; i < content.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(const Fields block,
                              Fields::Of(content[i], ElementPlace(message.PlaceOf("content"), i)));
      HEARTH_RETURN_IF_ERROR(ReadAssistantBlock(block, turn));
    }
  }
  turns.push_back(std::move(turn));
  return absl::OkStatus();
}

absl::Status ReadUser(const Fields& message, const Json& content, std::vector<ChatTurn>& turns) {
  ChatTurn turn;
  turn.place = message.place();
  bool has_text = content.is_string() || content.empty();
  if (content.is_string()) turn.content = content.get<std::string>();
  for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields block,
                            Fields::Of(content[i], ElementPlace(message.PlaceOf("content"), i)));
    HEARTH_ASSIGN_OR_RETURN(const std::string type, block.RequiredText("type"));
    if (type == "tool_result") {
      HEARTH_ASSIGN_OR_RETURN(ChatTurn result, ReadToolResult(block));
      turns.push_back(std::move(result));
    } else if (type == "text") {
      HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadTextBlock(block));
      absl::StrAppend(&turn.content, turn.content.empty() ? "" : "\n", text);
      has_text = true;
    } else {
      return block.Error("type", kTextOnly, "unsupported_value");
    }
  }
  if (has_text) turns.push_back(std::move(turn));
  return absl::OkStatus();
}

absl::Status ReadTurn(const Fields& message, std::vector<ChatTurn>& turns) {
  HEARTH_RETURN_IF_ERROR(message.Only({kMessageNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto role, message.Choice("role", {"user", "assistant", "system"}));
  if (!role.has_value()) return message.Error("role", "missing", "missing_required_parameter");
  const Json* content = message.Find("content");
  if (content == nullptr) {
    return message.Error("content", "missing, expected a string or a list of blocks",
                         "missing_required_parameter");
  }
  if (!content->is_string() && !content->is_array()) {
    return WrongType(message.PlaceOf("content"), "a string or a list of blocks", *content);
  }
  if (*role == "assistant") return ReadAssistant(message, *content, turns);
  HEARTH_RETURN_IF_ERROR(ReadUser(message, *content, turns));
  if (*role == "system" && !turns.empty()) turns.back().role = Role::kSystem;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ChatTurn>> ReadAnthropicTurns(const Fields& body) {
  HEARTH_ASSIGN_OR_RETURN(const Json* messages, body.Array("messages"));
  if (messages == nullptr) {
    return body.Error("messages", "missing, expected a list", "missing_required_parameter");
  }
  if (messages->empty() || messages->size() > kTurnCountMax) {
    return body.Error("messages", absl::StrCat("expected 1 to ", kTurnCountMax, " messages, found ",
                                               messages->size()));
  }
  std::vector<ChatTurn> turns;
  HEARTH_ASSIGN_OR_RETURN(std::string system, ReadTexts(body, "system", "\n\n"));
  if (!system.empty()) {
    turns.push_back({.role = Role::kSystem, .content = std::move(system), .place = "system"});
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields message,
                            Fields::Of((*messages)[i], ElementPlace("messages", i)));
    HEARTH_RETURN_IF_ERROR(ReadTurn(message, turns));
  }
  if (turns.back().role == Role::kAssistant) {
    return FieldError(turns.back().place,
                      "the last message is the assistant's: this server does not continue an "
                      "answer, end with a user's message",
                      "unsupported_value");
  }
  return turns;
}

absl::StatusOr<OfferedTools> ReadAnthropicTools(const Fields& body) {
  OfferedTools tools;
  HEARTH_ASSIGN_OR_RETURN(const Json* list, body.Array("tools"));
  if (list == nullptr) return tools;
  for (size_t i = 0; i < list->size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Fields tool, Fields::Of((*list)[i], ElementPlace("tools", i)));
    HEARTH_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
    if (type.has_value() && *type != "custom") {
      return tool.Error("type", "expected \"custom\": this server offers no tools of its own",
                        "unsupported_value");
    }
    HEARTH_RETURN_IF_ERROR(tool.Only({kToolNames, kBlockNames}));
    if (const Json* callers = tool.Find("allowed_callers");
        callers != nullptr && *callers != Json::array({"direct"})) {
      return tool.Error("allowed_callers", "expected [\"direct\"]", "unsupported_value");
    }
    HEARTH_ASSIGN_OR_RETURN(const auto deferred, tool.Bool("defer_loading"));
    if (deferred.value_or(false)) {
      return tool.Error("defer_loading", "not supported; expected false", "unsupported_value");
    }
    HEARTH_RETURN_IF_ERROR(AddTool(tool, "input_schema", tools));
  }
  return tools;
}

}  // namespace hearth
