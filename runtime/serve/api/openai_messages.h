// OpenAI's messages and tools, read into a Conversation. Only for .cc files: it shows nlohmann's
// JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/api/conversation.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/tool_set.h"

namespace hearth {

// "messages": roles system, developer (a system turn), user, assistant, tool; content as a string
// or as a list of text parts, which are joined. Anything but text is refused.
absl::StatusOr<std::vector<ChatTurn>> ReadOpenAiMessages(const Fields& body);

struct OfferedTools {
  ToolSet set;
  Json for_template = Json::array();
};
// "tools". Empty where there are none.
absl::StatusOr<OfferedTools> ReadOpenAiTools(const Fields& body);

// Adds one tool. InvalidArgument: a name that is not [A-Za-z0-9_-]{1,64} or comes twice, parameters
// that are no object.
absl::Status AddTool(const Fields& function, std::string_view schema_name, OfferedTools& tools);

}  // namespace hearth
