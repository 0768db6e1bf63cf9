// Cuts a template into tokens with Jinja's rules for white space: trim_blocks and lstrip_blocks on,
// the explicit marks -, + around tags, raw blocks, comments, one dropped newline at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

enum class TokenKind : uint8_t {
  kData,           // text outside of tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,    // text: after escapes
  kNumber,    // value
  kOperator,  // text: the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int32_t line = 1;  // 1-based
  std::string text;
  Value value;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// "<path>:<line>: <message>"
absl::Status SyntaxError(std::string_view path, int32_t line, std::string_view message);

// The tokens, ended by one kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source, const std::string& path);

}  // namespace hearth::jinja
