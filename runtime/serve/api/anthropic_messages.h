// Anthropic's system text, messages and tools, read into a Conversation. Only for .cc files: it
// shows nlohmann's JSON.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "runtime/serve/api/conversation.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/openai_messages.h"

namespace hearth {

// "system" and "messages". Content is a string or a list of blocks: text, tool_use, tool_result,
// thinking, redacted_thinking (which says nothing to us); anything but text is refused. Results of
// tools become turns of their own, before the text that came with them.
absl::StatusOr<std::vector<ChatTurn>> ReadAnthropicTurns(const Fields& body);

// "tools", those of the client alone.
absl::StatusOr<OfferedTools> ReadAnthropicTools(const Fields& body);

}  // namespace hearth
