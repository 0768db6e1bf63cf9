// A conversation as all dialects mean it, and its way through the chat template into tokens. Only
// for .cc files: it shows nlohmann's JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/serve/api/model_facts.h"
#include "runtime/serve/api/strict_json.h"
#include "runtime/serve/api/tool_set.h"

namespace hearth {

inline constexpr uint32_t kTurnCountMax = 16384;
inline constexpr uint32_t kCallsPerTurnMax = 256;

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

struct PastCall {
  std::string id;
  std::string name;
  Json arguments = Json::object();  // an object
};

struct ChatTurn {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning;  // of an assistant; empty: none
  std::vector<PastCall> calls;
  std::string call_id;  // of a tool's result
  std::string name;     // of the speaker or the tool; empty: none
  std::string place;    // in the body, for errors: "messages[2]"
};

struct Conversation {
  std::vector<ChatTurn> turns;
  Json tools = Json::array();       // as the template is to see them; empty: none
  Json variables = Json::object();  // further variables of the template
};

struct RenderedPrompt {
  std::vector<TokenId> tokens;
  std::string text;
  bool reasoning_open = false;  // it ends inside reasoning
};

// Adjacent system turns at the beginning become one. What a client wrote never becomes a control
// token. InvalidArgument: what the template itself refuses, or what it would drop without a word
// (tools, calls, a system text); FailedPrecondition: a model without a template.
absl::StatusOr<RenderedPrompt> RenderConversation(const Conversation& conversation,
                                                  const ModelFacts& facts);

// OutOfRange with both lengths where the context leaves no token for an answer.
absl::Status CheckPromptFits(size_t prompt_tokens, const ModelFacts& facts);

}  // namespace hearth
