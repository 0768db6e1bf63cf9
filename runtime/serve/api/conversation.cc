#include "runtime/serve/api/conversation.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/api_error.h"

namespace hearth {
namespace {

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kWhitespace = " \t\r\n";
// Variables that are the server's own.
constexpr std::array<std::string_view, 7> kReservedVariables = {
    "messages",  "tools",     "documents", "add_generation_prompt",
    "bos_token", "eos_token", "pad_token"};

const char* RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "user";
}

class MessageWriter {
 public:
  MessageWriter(const ControlTextGuard& guard, ControlTextGuard::Marks& marks)
      : guard_(guard), marks_(marks) {}

  Json Message(const ChatTurn& turn) {
    Json message{{"role", RoleName(turn.role)}};
    message["content"] = guard_.Guard(turn.content, marks_);
    if (!turn.reasoning.empty()) {
      message["reasoning_content"] = guard_.Guard(turn.reasoning, marks_);
    }
    if (!turn.name.empty()) message["name"] = guard_.GuardWord(turn.name, marks_);
    if (!turn.call_id.empty()) message["tool_call_id"] = guard_.GuardWord(turn.call_id, marks_);
    if (turn.calls.empty()) return message;
    Json calls = Json::array();
    for (const PastCall& call : turn.calls) {
      Json function = Json::object();
      function["name"] = guard_.GuardWord(call.name, marks_);
      function["arguments"] = Texts(call.arguments, Text::kFree);
      Json entry = Json::object();
      entry["id"] = guard_.GuardWord(call.id, marks_);
      entry["type"] = "function";
      entry["function"] = std::move(function);
      calls.push_back(std::move(entry));
    }
    message["tool_calls"] = std::move(calls);
    return message;
  }

  enum class Text : uint8_t { kFree, kWord };
  // The same JSON with every text and every name in it guarded. As deep as the body at most.
  Json Texts(const Json& json, Text kind) {
    if (json.is_string()) {
      const auto& text = json.get_ref<const std::string&>();
      return kind == Text::kFree ? guard_.Guard(text, marks_) : guard_.GuardWord(text, marks_);
    }
    if (json.is_array()) {
      Json list = Json::array();
      for (const Json& item : json) list.push_back(Texts(item, kind));
      return list;
    }
    if (!json.is_object()) return json;
    Json object = Json::object();
    auto& members = object.get_ref<Json::object_t&>();
    for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) {
      members.emplace_back(guard_.GuardWord(name, marks_), Texts(value, kind));
    }
    return object;
  }

 private:
  const ControlTextGuard& guard_;
  ControlTextGuard::Marks& marks_;
};

absl::Status CheckAbilities(const Conversation& conversation, const ChatAbilities& abilities) {
  constexpr std::string_view kRemedy =
      "this model's chat template does not know tools; leave them out, or have the server started "
      "with --chat-template and one that does";
  if (!abilities.tools) {
    if (!conversation.tools.empty()) return FieldError("tools", kRemedy, "unsupported_parameter");
    for (const ChatTurn& turn : conversation.turns) {
      if (!turn.calls.empty()) return FieldError(turn.place, kRemedy, "unsupported_value");
      if (turn.role == Role::kTool) return FieldError(turn.place, kRemedy, "unsupported_value");
    }
  }
  if (!abilities.system) {
    for (const ChatTurn& turn : conversation.turns) {
      if (turn.role != Role::kSystem) continue;
      return FieldError(turn.place, "this model's chat template has no place for a system message",
                        "unsupported_value");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVariables(const Json& json, const ControlTextGuard& guard) {
  if (json.is_string() && guard.SpellsControlToken(json.get_ref<const std::string&>())) {
    return FieldError("chat_template_kwargs", "a value spells a control token");
  }
  if (json.is_structured()) {
    for (const Json& value : json) HEARTH_RETURN_IF_ERROR(CheckVariables(value, guard));
  }
  return absl::OkStatus();
}

std::vector<ChatTurn> JoinSystemTurns(const std::vector<ChatTurn>& turns) {
  std::vector<ChatTurn> joined;
  for (const ChatTurn& turn : turns) {
    const bool more =
        joined.size() == 1 && joined[0].role == Role::kSystem && turn.role == Role::kSystem;
    if (more) {
      absl::StrAppend(&joined[0].content, "\n\n", turn.content);
    } else {
      joined.push_back(turn);
    }
  }
  return joined;
}

}  // namespace

absl::StatusOr<RenderedPrompt> RenderConversation(const Conversation& conversation,
                                                  const ModelFacts& facts) {
  if (facts.chat == nullptr) {
    return absl::FailedPreconditionError(
        "this model comes without a chat template: use /v1/completions, or have the server started "
        "with --chat-template");
  }
  if (conversation.turns.empty()) return FieldError("messages", "expected at least one message");
  HEARTH_RETURN_IF_ERROR(CheckAbilities(conversation, facts.abilities));
  for (const std::string_view name : kReservedVariables) {
    if (conversation.variables.contains(std::string(name))) {
      return FieldError("chat_template_kwargs", absl::StrCat("'", ToAbsl(name),
                                                             "' is not for "
                                                             "requests to set"));
    }
  }
  HEARTH_RETURN_IF_ERROR(CheckVariables(conversation.variables, *facts.guard));
  ControlTextGuard::Marks marks;
  MessageWriter writer(*facts.guard, marks);
  Json messages = Json::array();
  for (const ChatTurn& turn : JoinSystemTurns(conversation.turns)) {
    messages.push_back(writer.Message(turn));
  }
  ChatRequest request = facts.chat_base;
  request.messages_json = DumpJson(messages);
  if (!conversation.tools.empty()) {
    request.tools_json = DumpJson(writer.Texts(conversation.tools, MessageWriter::Text::kWord));
  }
  if (!conversation.variables.empty()) request.variables_json = DumpJson(conversation.variables);
  const absl::StatusOr<std::string> rendered = facts.chat->Render(request);
  if (!rendered.ok()) return AtField(rendered.status(), "messages");
  RenderedPrompt prompt;
  HEARTH_ASSIGN_OR_RETURN(prompt.tokens, facts.guard->Encode(*rendered, marks));
  HEARTH_ASSIGN_OR_RETURN(prompt.text, facts.guard->Text(*rendered, marks));
  // Of the template's own text: a client's is behind a mark.
  const std::string_view tail =
      std::string_view(*rendered).substr(0, rendered->find_last_not_of(kWhitespace) + 1);
  prompt.reasoning_open = facts.abilities.reasoning && tail.ends_with(kThinkOpen);
  if (prompt.tokens.empty()) return FieldError("messages", "the prompt is empty");
  return prompt;
}

absl::Status CheckPromptFits(size_t prompt_tokens, const ModelFacts& facts) {
  if (prompt_tokens < facts.context_tokens) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the prompt has ", prompt_tokens, " tokens, and this model's context holds ",
                   facts.context_tokens, " with the answer: expected at most ",
                   facts.context_tokens == 0 ? 0 : facts.context_tokens - 1, " tokens"));
}

}  // namespace hearth
