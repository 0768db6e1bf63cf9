// What all dialects' writers do with an answer: its text taken apart, its reasoning's tokens
// counted, its whole kept where the client wants it whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/api/answer_parser.h"
#include "runtime/serve/completion.h"

namespace hearth {

class AnswerReader {
 public:
  explicit AnswerReader(const AnswerFormat& format) : parser_(format) {}

  std::vector<AnswerPart> Read(const CompletionDelta& delta);
  std::vector<AnswerPart> Finish();

  // Tokens of the reasoning. Of a window in which it ends, the share of its text.
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  uint32_t call_count() const { return parser_.call_count(); }

 private:
  AnswerParser parser_;
  uint32_t reasoning_tokens_ = 0;
};

// Appends parts, joining what is of one kind: what many pieces make is what one would.
void AppendParts(std::vector<AnswerPart> parts, std::vector<AnswerPart>& all);

// Cuts text between characters, into pieces of at most `bytes_max` (at least 4).
std::vector<std::string_view> Pieces(std::string_view text, size_t bytes_max);

inline constexpr size_t kArgumentPieceBytes = 512;

}  // namespace hearth
