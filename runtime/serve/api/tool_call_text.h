// The two ways in which models write a call of a tool, read back into its name and arguments:
//
//   <function=NAME>\n<parameter=P>\nVALUE\n</parameter>\n</function>     one line break on either
//                                                                       side of VALUE is no part of
//                                                                       it
//   {"name": "NAME", "arguments": {...}}
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/serve/api/tool_set.h"

namespace hearth {

inline constexpr std::string_view kToolCallBegin = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";

struct ToolCallText {
  std::string name;
  std::string arguments_json;  // an object
};

// `body` is what stands between kToolCallBegin and kToolCallEnd. nullopt where it is not a whole
// call of one of `tools`.
std::optional<ToolCallText> ReadToolCall(std::string_view body, const ToolSet& tools);

// Whether a body that begins so can still become a call. Once false, false for every longer one.
bool MayBecomeToolCall(std::string_view begun, const ToolSet& tools);

}  // namespace hearth
