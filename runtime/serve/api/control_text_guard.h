// Keeps what a client wrote from becoming a control token, whatever a chat template does with it.
//
// Where a client's text spells an added token (<|im_end|>, <think>...), or could spell one together
// with what a template prints before or after it, the template sees a mark: U+FDD0, a number,
// U+FDD1. After rendering, the marks become parts of plain text again, which the tokenizer encodes
// as it would any text (Tokenizer::EncodeParts); all other text is parsed. A client's own U+FDD0 is
// marked as well, so no text can forge a mark.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/added_token_trie.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// Immutable: any number of threads may use one at once. `tokenizer` outlives it.
class ControlTextGuard {
 public:
  explicit ControlTextGuard(const Tokenizer& tokenizer);

  // What the marks of one rendering stand for, by their numbers.
  struct Marks {
    std::vector<std::string> texts;
  };

  // Free text: a message's content, an argument's value. Valid UTF-8.
  std::string Guard(std::string_view text, Marks& marks) const;
  // A word that templates compare or put in quotes (a name, a type in a schema): as Guard, but a
  // word that is a part of an added token, such as "think", stays itself.
  std::string GuardWord(std::string_view word, Marks& marks) const;

  // The tokens of a rendered text. Unimplemented where the template cut a mark.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view rendered, const Marks& marks) const;
  // The rendered text with the marks replaced: what Encode encodes. Errors as Encode.
  absl::StatusOr<std::string> Text(std::string_view rendered, const Marks& marks) const;

  // Whether the text holds an added token whole.
  bool SpellsControlToken(std::string_view text) const;

 private:
  struct Range {  // of bytes
    size_t begin;
    size_t end;
  };
  std::vector<Range> RangesToMark(std::string_view text) const;
  // Ranges at the ends of text.substr(begin, end - begin) that an added token could reach into.
  void AddEdges(std::string_view text, Range within, std::vector<Range>& ranges) const;
  static std::string Mark(std::string_view text, std::vector<Range> ranges, Marks& marks);
  static absl::StatusOr<std::vector<TextPart>> Split(std::string_view rendered, const Marks& marks);

  const Tokenizer* tokenizer_;
  AddedTokenTrie trie_;
  std::string joined_;  // the contents of all added tokens, a byte FF after each
  size_t content_bytes_max_ = 0;
  absl::flat_hash_set<std::string> beginnings_;  // of added tokens, shorter than they
  absl::flat_hash_set<std::string> endings_;     // likewise
};

}  // namespace hearth
