// The byte-level BPE tokenizer that a checkpoint's tokenizer.json describes. Equal, id for id, to
// the reference implementation (the package `tokenizers`) for every file it accepts; what it does
// not implement it refuses by name. Immutable: any number of threads may use one at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"

namespace hearth {

// Whether added tokens (control tokens such as <|im_end|>) that a text spells are those tokens.
enum class SpecialTokens {
  kParse,   // for text the program wrote, such as a rendered chat template
  kAsText,  // for what a user typed: never becomes an added token, not even by merging
};

enum class SkipSpecial { kNo, kYes };  // kYes leaves out tokens that are marked special

struct TextPart {  // borrowed
  std::string_view text;
  SpecialTokens special = SpecialTokens::kParse;
};

class Tokenizer {
 public:
  // `path` only names the file in messages.
  static absl::StatusOr<Tokenizer> FromJson(std::string_view json_text, const std::string& path);

  Tokenizer(Tokenizer&& other) noexcept;
  Tokenizer& operator=(Tokenizer&& other) noexcept;
  ~Tokenizer();

  // Broken UTF-8 is first replaced by U+FFFD (see utf8.h). Adds no token of its own.
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const;

  // As Encode of the joined text: normalising, splitting and merging see no border between parts.
  // But an added token is only found where all of its bytes are in kParse parts, and broken UTF-8
  // is replaced within each part.
  std::vector<TokenId> EncodeParts(std::span<const TextPart> parts) const;

  // Valid UTF-8: the tokens' bytes joined, broken parts replaced by U+FFFD. Ids outside the
  // vocabulary add nothing.
  std::string Decode(std::span<const TokenId> ids, SkipSpecial skip) const;

  // The bytes a token stands for, which need not be whole characters; for an added token its
  // content. Empty for an id outside the vocabulary. Valid while the tokenizer lives.
  std::string_view TokenBytes(TokenId id) const;

  // The added token with this content.
  std::optional<TokenId> FindToken(std::string_view content) const;

  bool IsAdded(TokenId id) const;    // any token of added_tokens
  bool IsSpecial(TokenId id) const;  // one of them that is marked special

  uint32_t vocab_count() const;  // ids are 0 .. vocab_count() - 1

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<const Data> data);

  std::unique_ptr<const Data> data_;
};

}  // namespace hearth
