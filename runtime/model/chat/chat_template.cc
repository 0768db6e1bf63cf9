// Sets the template's variables the way that apply_chat_template does.
#include "runtime/model/chat/chat_template.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_interpreter.h"
#include "runtime/model/chat/jinja_json.h"
#include "runtime/model/chat/jinja_limits.h"
#include "runtime/model/chat/jinja_parser.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth {
namespace {

using jinja::JsonFormat;
using jinja::Kind;
using jinja::Value;

// An array, or None where the text is empty or null.
absl::StatusOr<Value> ParseArray(std::string_view json, std::string_view what) {
  if (json.empty()) return Value::None();
  HEARTH_ASSIGN_OR_RETURN(Value value, jinja::ParseJson(json, what));
  if (value.kind() == Kind::kList || value.IsNone()) return value;
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), ": expected an array, found '",
                                                 ToAbsl(jinja::TypeName(value)), "'"));
}

absl::Status CheckUtf8(std::string_view text, std::string_view what) {
  if (jinja::IsValidUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), ": not UTF-8"));
}

}  // namespace

ChatRequest SingleUserTurn(std::string_view user_text, std::string_view system_text) {
  const auto message = [](std::string_view role, std::string_view text) {
    return absl::StrCat("{\"role\": \"", ToAbsl(role), "\", \"content\": ", jinja::QuoteJson(text),
                        "}");
  };
  ChatRequest request;
  request.messages_json =
      absl::StrCat("[", system_text.empty() ? "" : message("system", system_text) + ", ",
                   message("user", user_text), "]");
  return request;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Template> parsed)
    : parsed_(std::move(parsed)) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::ParseTemplate(source, path));
  return ChatTemplate(std::make_shared<const jinja::Template>(std::move(parsed)));
}

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string source, ReadFile(path, jinja::kTemplateBytesMax));
  return Parse(source, path);
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  jinja::RenderInputs inputs;
  inputs.now = request.now;
  const auto set = [&inputs](std::string name, Value value) {
    inputs.variables.push_back({std::move(name), std::move(value)});
  };
  HEARTH_ASSIGN_OR_RETURN(Value messages, ParseArray(request.messages_json, "messages"));
  if (messages.IsNone()) return absl::InvalidArgumentError("messages: expected an array");
  set("messages", std::move(messages));
  HEARTH_ASSIGN_OR_RETURN(Value tools, ParseArray(request.tools_json, "tools"));
  set("tools", std::move(tools));
  HEARTH_ASSIGN_OR_RETURN(Value documents, ParseArray(request.documents_json, "documents"));
  set("documents", std::move(documents));
  set("add_generation_prompt", Value::Bool(request.add_generation_prompt));
  for (const auto& [name, token] :
       {std::pair("bos_token", &request.bos_token), std::pair("eos_token", &request.eos_token),
        std::pair("pad_token", &request.pad_token)}) {
    if (!token->has_value()) continue;
    HEARTH_RETURN_IF_ERROR(CheckUtf8(**token, name));
    set(name, Value::String(**token));
  }
  if (!request.variables_json.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const Value variables,
                            jinja::ParseJson(request.variables_json, "variables"));
    if (!variables.IsDict()) {
      return absl::InvalidArgumentError("variables: expected an object");
    }
    for (const jinja::DictEntry& entry : variables.AsDict().entries()) {
      set(entry.key.AsString(), entry.value);
    }
  }
  return jinja::RenderTemplate(*parsed_, std::move(inputs));
}

}  // namespace hearth
