// A checkpoint's own chat template: a conversation in, the prompt text out, as Hugging Face's
// apply_chat_template renders it. Immutable after Parse(); Render() may be called from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"

namespace hearth {

namespace jinja {
struct Template;
}  // namespace jinja

// What to render. JSON texts are passed to the template as they are: content may be a string or a
// list of parts, arguments of tool calls a string or an object.
struct ChatRequest {
  std::string messages_json;   // array of messages
  std::string tools_json;      // array of tools; empty: none
  std::string documents_json;  // array of documents; empty: none
  std::string variables_json;  // object of further variables (enable_thinking, reasoning_effort...)
  bool add_generation_prompt = true;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<absl::CivilSecond> now;  // for templates that print the date, in local time
};

// One user turn, with an optional system text before it.
ChatRequest SingleUserTurn(std::string_view user_text, std::string_view system_text = "");

class ChatTemplate {
 public:
  // `path` names the template in messages. What the template uses and Hearth does not know is
  // refused here: "chat_template.jinja:17: unknown filter 'xyz'; ...".
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source, const std::string& path);
  // Reads `path`; at most 1 MiB.
  static absl::StatusOr<ChatTemplate> Load(const std::string& path);

  // A refusal of the template itself (raise_exception) is InvalidArgument with its message.
  absl::StatusOr<std::string> Render(const ChatRequest& request) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> parsed);
  std::shared_ptr<const jinja::Template> parsed_;
};

}  // namespace hearth
