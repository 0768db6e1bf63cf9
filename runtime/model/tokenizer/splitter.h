// Cuts text into the pieces that byte-pair merging works on, by a split pattern of tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace hearth {

// Immutable: any number of threads may split at once.
class Splitter {
 public:
  // `pattern` as tokenizer.json spells it (see split_dialect.h). A pattern that matches the empty
  // text is refused.
  static absl::StatusOr<Splitter> Create(std::string_view pattern);

  // Appends the pieces of `text`, valid UTF-8, to `pieces`: each match and each stretch between
  // matches is one piece ("Isolated"), so that the pieces joined are the text. Work is bounded:
  // where the engine reaches its limit, the rest of the text is one piece.
  void Split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct ContextDeleter {
    void operator()(pcre2_real_match_context_8* context) const;
  };
  Splitter() = default;

  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
  std::unique_ptr<pcre2_real_match_context_8, ContextDeleter> context_;
};

}  // namespace hearth
