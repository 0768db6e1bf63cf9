#include "runtime/serve/api/tool_call_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

constexpr std::string_view kFunctionBegin = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameterBegin = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kWhitespace = " \t\r\n";
constexpr size_t kParameterNameBytesMax = 256;

std::string_view TrimLeft(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhitespace);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhitespace) + 1);
}

std::string_view WithoutOuterLineBreaks(std::string_view value) {
  if (value.starts_with("\r\n")) {
    value.remove_prefix(2);
  } else if (value.starts_with('\n')) {
    value.remove_prefix(1);
  }
  if (value.ends_with("\r\n")) {
    value.remove_suffix(2);
  } else if (value.ends_with('\n')) {
    value.remove_suffix(1);
  }
  return value;
}

// Where the value of a parameter ends: at the first end mark that another parameter follows, or
// nothing. npos: nowhere.
size_t EndOfValue(std::string_view text) {
  for (size_t at = text.find(kParameterEnd); at != std::string_view::npos;
       at = text.find(kParameterEnd, at + 1)) {
    const std::string_view after = TrimLeft(text.substr(at + kParameterEnd.size()));
    if (after.empty() || after.starts_with(kParameterBegin)) return at;
  }
  return std::string_view::npos;
}

std::optional<ToolCallText> ReadMarkedCall(std::string_view text, const ToolSet& tools) {
  text.remove_prefix(kFunctionBegin.size());
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos || !text.ends_with(kFunctionEnd)) return std::nullopt;
  const Tool* tool = tools.Find(text.substr(0, name_end));
  if (tool == nullptr || name_end + 1 + kFunctionEnd.size() > text.size()) return std::nullopt;
  std::string_view rest = text.substr(name_end + 1);
  rest.remove_suffix(kFunctionEnd.size());
  std::string arguments = "{";
  std::set<std::string_view> names;
  for (rest = TrimLeft(rest); !rest.empty(); rest = TrimLeft(rest)) {
    if (!rest.starts_with(kParameterBegin)) return std::nullopt;
    rest.remove_prefix(kParameterBegin.size());
    const size_t end = rest.find('>');
    if (end == std::string_view::npos || end == 0 || end > kParameterNameBytesMax) {
      return std::nullopt;
    }
    const std::string_view name = rest.substr(0, end);
    if (!names.insert(name).second) return std::nullopt;
    rest.remove_prefix(end + 1);
    const size_t value_end = EndOfValue(rest);
    if (value_end == std::string_view::npos) return std::nullopt;
    const std::string_view value = WithoutOuterLineBreaks(rest.substr(0, value_end));
    rest.remove_prefix(value_end + kParameterEnd.size());
    absl::StrAppend(&arguments, names.size() > 1 ? ", " : "", DumpJson(Json(std::string(name))),
                    ": ", ArgumentJson(value, tool->TypesOf(name)));
  }
  return ToolCallText{tool->name, arguments + "}"};
}

std::optional<ToolCallText> ReadJsonCall(std::string_view text, const ToolSet& tools) {
  const absl::StatusOr<Json> json = ParseStrictJson(text, "a call");
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto name = json->find("name");
  if (name == json->end() || !name->is_string()) return std::nullopt;
  const Tool* tool = tools.Find(name->get_ref<const std::string&>());
  if (tool == nullptr) return std::nullopt;
  const auto arguments = json->find("arguments");
  const size_t known = arguments == json->end() ? 1 : 2;
  if (json->size() != known) return std::nullopt;
  if (arguments == json->end()) return ToolCallText{tool->name, "{}"};
  if (arguments->is_object()) return ToolCallText{tool->name, DumpJson(*arguments)};
  if (!arguments->is_string()) return std::nullopt;
  const absl::StatusOr<Json> inner =
      ParseStrictJson(arguments->get_ref<const std::string&>(), "arguments");
  if (!inner.ok() || !inner->is_object()) return std::nullopt;
  return ToolCallText{tool->name, DumpJson(*inner)};
}

// Whether one of the two is a beginning of the other.
bool Agree(std::string_view a, std::string_view b) {
  const size_t common = std::min(a.size(), b.size());
  return a.substr(0, common) == b.substr(0, common);
}

}  // namespace

std::optional<ToolCallText> ReadToolCall(std::string_view body, const ToolSet& tools) {
  const std::string_view text = TrimRight(TrimLeft(body));
  if (text.starts_with(kFunctionBegin)) return ReadMarkedCall(text, tools);
  // A longer text cannot end a call yet: most candidates are refused without being parsed.
  if (text.starts_with('{') && text.ends_with('}')) return ReadJsonCall(text, tools);
  return std::nullopt;
}

bool MayBecomeToolCall(std::string_view begun, const ToolSet& tools) {
  std::string_view text = TrimLeft(begun);
  if (text.empty() || text.starts_with('{')) return true;
  if (!Agree(text, kFunctionBegin)) return false;
  if (text.size() <= kFunctionBegin.size()) return true;
  text.remove_prefix(kFunctionBegin.size());
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) {
    return std::any_of(tools.tools.begin(), tools.tools.end(),
                       [text](const Tool& tool) { return tool.name.starts_with(text); });
  }
  if (tools.Find(text.substr(0, name_end)) == nullptr) return false;
  text = TrimLeft(text.substr(name_end + 1));
  return Agree(text, kParameterBegin) || Agree(text, kFunctionEnd);
}

}  // namespace hearth
