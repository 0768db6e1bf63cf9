#include "runtime/serve/api/answer_reader.h"

#include <iterator>
#include <utility>

namespace hearth {

std::vector<AnswerPart> AnswerReader::Read(const CompletionDelta& delta) {
  std::vector<AnswerPart> parts;
  const bool before = parser_.in_reasoning();
  parser_.Push(delta.text, parts);
  const bool after = parser_.in_reasoning();
  if (before && after) {
    reasoning_tokens_ += delta.tokens;
  } else if (before || after) {
    size_t reasoning_bytes = 0;
    size_t other_bytes = 1;  // the mark that begins or ends it
    for (const AnswerPart& part : parts) {
      (part.kind == AnswerPart::Kind::kReasoning ? reasoning_bytes : other_bytes) +=
          part.text.size();
    }
    reasoning_tokens_ +=
        static_cast<uint32_t>(delta.tokens * reasoning_bytes / (reasoning_bytes + other_bytes));
  }
  return parts;
}

std::vector<AnswerPart> AnswerReader::Finish() {
  std::vector<AnswerPart> parts;
  parser_.Finish(parts);
  return parts;
}

void AppendParts(std::vector<AnswerPart> parts, std::vector<AnswerPart>& all) {
  for (AnswerPart& part : parts) {
    if (!all.empty() && all.back().kind == part.kind && part.kind != AnswerPart::Kind::kCall) {
      all.back().text += part.text;
    } else {
      all.push_back(std::move(part));
    }
  }
}

std::vector<std::string_view> Pieces(std::string_view text, size_t bytes_max) {
  std::vector<std::string_view> pieces;
  while (text.size() > bytes_max) {
    size_t length = bytes_max;
    const auto inside = [&text](size_t at) {  // a character that began before `at`
      return (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
    };
    while (length > 1 && inside(length)) --length;
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  if (!text.empty()) pieces.push_back(text);
  return pieces;
}

}  // namespace hearth
