// UTF-8 characters reassembled from tokens that may begin or end inside one.
#include "runtime/model/tokenizer/stream_decoder.h"

#include <utility>

#include "runtime/model/tokenizer/utf8.h"

namespace hearth {

std::string Utf8Joiner::Push(std::string_view bytes) {
  held_.append(bytes);
  // Only the last three bytes can be an unfinished character, and only from a lead byte on.
  const std::string_view all = held_;
  size_t keep_from = all.size();
  for (size_t back = 1; back <= 3 && back <= all.size(); ++back) {
    const size_t at = all.size() - back;
    const uint8_t byte = static_cast<uint8_t>(all[at]);
    if ((byte & 0xC0) == 0x80) continue;  // a continuation byte: its lead is further left
    const Utf8Step step = NextUtf8(all.substr(at));
    if (step.kind == Utf8Step::Kind::kIncomplete) keep_from = at;
    break;
  }
  std::string text;
  AppendReplacingBroken(all.substr(0, keep_from), text);
  held_.erase(0, keep_from);
  return text;
}

std::string Utf8Joiner::Finish() {
  std::string text;
  AppendReplacingBroken(std::exchange(held_, std::string()), text);
  return text;
}

std::string StreamDecoder::Push(TokenId id) {
  if (skip_ == SkipSpecial::kYes && tokenizer_->IsSpecial(id)) return std::string();
  return joiner_.Push(tokenizer_->TokenBytes(id));
}

}  // namespace hearth
