// A trie whose edges lie in one hash table: few tokens, long stretches without a first byte.
#include "runtime/model/tokenizer/added_token_trie.h"

namespace hearth {
namespace {

uint64_t EdgeKey(uint32_t parent, char byte) {
  return uint64_t{parent} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

AddedTokenTrie::AddedTokenTrie(std::span<const AddedToken> tokens) {
  uint32_t node_count = 1;
  for (const AddedToken& token : tokens) {
    first_bytes_.set(static_cast<uint8_t>(token.content[0]));
    Node* node = nullptr;
    for (const char byte : token.content) {
      const uint32_t parent = node == nullptr ? 0 : node->index;
      const auto [edge, is_new] = edges_.try_emplace(EdgeKey(parent, byte), Node{node_count, -1});
      if (is_new) ++node_count;
      node = &edge->second;
    }
    node->id = token.id;
  }
}

std::optional<AddedTokenTrie::Match> AddedTokenTrie::Find(std::string_view text,
                                                          size_t from_bytes) const {
  for (size_t begin = from_bytes; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t parent = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto edge = edges_.find(EdgeKey(parent, text[at]));
      if (edge == edges_.end()) break;
      parent = edge->second.index;
      if (edge->second.id >= 0) longest = Match{begin, at + 1 - begin, edge->second.id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace hearth
