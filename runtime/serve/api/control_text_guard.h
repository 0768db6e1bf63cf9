// Keeps what a client wrote from becoming a control token, whatever a chat template does with it.
//
// Where a client's text spells an added token (<|im_end|>, <think>...), or could spell one together
// with what a template prints before or after it, the template sees a mark: U+FDD0, a number,
// U+FDD1. After rendering, the marks become parts of plain text again, which the tokenizer encodes
// as it would any text (EncodeParts), and everything else is parsed. A client's own U+FDD0 is
// marked as well, so no text can forge a mark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/added_token_trie.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// Immutable: any number of threads may use one at once. `tokenizer` outlives it.
class ControlTextGuard {
 public:
  explicit ControlTextGuard(const Tokenizer& tokenizer);

  // What the marks of one rendering stand for.
  struct Marks {
    std::vector<std::string> texts;
  };

  // Free text: a message's content, an argument's value.
  std::string Guard(std::string_view text, Marks& marks) const;
  // A word that templates may compare or that stands in quotes (a name, a schema's type): as Guard,
  // but a word that is a part of an added token, such as "think", stays itself.
  std::string GuardWord(std::string_view word, Marks& marks) const;

  // The tokens of a rendered text. Unimplemented where the template changed a mark.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view rendered, const Marks& marks) const;
  // The rendered text with the marks replaced: what Encode encodes.
  absl::StatusOr<std::string> Text(std::string_view rendered, const Marks& marks) const;

  // Whether the text holds an added token whole.
  bool SpellsControlToken(std::string_view text) const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> contents_;  // of all added tokens
  AddedTokenTrie trie_;
};

}  // namespace hearth
