// Finds added tokens in text: the leftmost, and of those the longest.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/container/flat_hash_map.h"

#include "runtime/model/tokenizer/tokenizer_json.h"

namespace hearth {

class AddedTokenTrie {
 public:
  struct Match {
    size_t begin_bytes;
    size_t length_bytes;
    TokenId id;
  };

  explicit AddedTokenTrie(std::span<const AddedToken> tokens);

  // The first match that begins at or after `from_bytes` and lies in `text`.
  std::optional<Match> Find(std::string_view text, size_t from_bytes) const;

 private:
  struct Node {
    uint32_t index;
    TokenId id;  // of the token that ends here; -1: none
  };

  // Edges as parent << 8 | byte; the root has index 0.
  absl::flat_hash_map<uint64_t, Node> edges_;
  std::bitset<256> first_bytes_;
};

}  // namespace hearth
