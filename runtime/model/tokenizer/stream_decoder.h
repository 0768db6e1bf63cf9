// Turns generated tokens into text as they come, in chunks that are valid UTF-8 on their own.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// Joins byte strings into text. Holds back at most three bytes: those that may yet become a
// character. All results joined equal AppendReplacingBroken of all input joined.
class Utf8Joiner {
 public:
  std::string Push(std::string_view bytes);
  std::string Finish();  // what is held back, as U+FFFD; then starts anew

 private:
  std::string held_;  // the beginning of a character
};

// One per sequence; not thread-safe. `tokenizer` must outlive it. The chunks joined equal
// Tokenizer::Decode of all the tokens.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, SkipSpecial skip = SkipSpecial::kNo)
      : tokenizer_(&tokenizer), skip_(skip) {}

  std::string Push(TokenId id);  // may be empty
  std::string Finish() { return joiner_.Finish(); }

 private:
  const Tokenizer* tokenizer_;
  SkipSpecial skip_;
  Utf8Joiner joiner_;
};

}  // namespace hearth
