// Reads tokenizer.json into a plain description, and refuses by name what Hearth does not
// implement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/token_table.h"

namespace hearth {

// Back of the envelope: the largest vocabularies in use have 2^18 tokens and as many merges and
// make files of 10 to 30 MB.
inline constexpr uint64_t kTokenizerJsonBytesMax = 64ull << 20;
inline constexpr uint32_t kVocabCountMax = 1u << 22;
inline constexpr uint32_t kMergeCountMax = 1u << 22;
inline constexpr uint32_t kAddedTokenCountMax = 1u << 14;
inline constexpr uint32_t kAddedTokenBytesMax = 1024;

struct AddedToken {
  TokenId id;
  std::string content;  // not empty
  bool special;         // left out when decoding skips special tokens
};

struct BpeMerge {  // two tokens side by side become one; the index in the list is the rank
  TokenId left;
  TokenId right;
  TokenId merged;
};

struct TokenizerDescription {
  TokenTable tokens;                         // bytes of ids 0 .. count-1, added tokens included
  std::vector<bool> in_model;                // by id: named by model.vocab
  std::vector<BpeMerge> merges;              // by rank
  std::vector<AddedToken> added_tokens;      // distinct ids and contents
  std::optional<std::string> split_pattern;  // none: the text between added tokens is one piece
  bool normalize_nfc = false;
  bool ignore_merges = false;  // a piece that is a token as a whole is that token
};

// `path` only names the file in messages: "<path>: <key>: expected ..., found ...".
absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view json_text,
                                                        const std::string& path);

}  // namespace hearth
