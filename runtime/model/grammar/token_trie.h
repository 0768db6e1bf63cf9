// All tokens of a vocabulary that stand for bytes, as a trie in one array: what a mask is computed
// by walking. Immutable: any number of threads may use one at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth::grammar {

class TokenTrie {
 public:
  // One node, depth first: its first child, if it has one, is the next node.
  struct Node {
    uint32_t skip;          // the first node behind this one's subtree
    uint32_t tokens_begin;  // in tokens(): those that end here reach to the next node's begin
    uint16_t depth;         // bytes from the root; at least 1
    uint8_t byte;
  };

  // The tokens of `tokenizer` but those that are added ones. A model may choose among more tokens
  // than its tokenizer has: `vocab_count` of them, if that is more.
  static std::shared_ptr<const TokenTrie> FromTokenizer(const Tokenizer& tokenizer,
                                                        uint32_t vocab_count);
  // Token i stands for token_bytes[i]; an empty text, or one of over 65,535 bytes, for none.
  static std::shared_ptr<const TokenTrie> FromBytes(std::span<const std::string_view> token_bytes);

  // Without the root; nodes()[i].tokens_begin .. nodes()[i + 1].tokens_begin are the tokens of node
  // i. One more node than there are follows as the end.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const TokenId> TokensAt(uint32_t node) const {
    const uint32_t begin = nodes_[node].tokens_begin;
    return {tokens_.data() + begin, nodes_[node + 1].tokens_begin - begin};
  }
  std::string_view Bytes(TokenId token) const {
    const size_t index = static_cast<size_t>(token);
    return {bytes_.data() + bytes_begin_[index], bytes_begin_[index + 1] - bytes_begin_[index]};
  }

  uint32_t vocab_count() const { return static_cast<uint32_t>(bytes_begin_.size() - 1); }
  uint32_t words() const { return (vocab_count() + 63) / 64; }  // of a mask
  uint32_t depth() const { return depth_; }                     // of the longest token, bytes
  bool HasByte(uint8_t byte) const { return has_byte_[byte]; }  // a token of exactly this byte

 private:
  TokenTrie() = default;
  void AddToken(TokenId token, std::string_view bytes, std::vector<uint32_t>& path);

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::string bytes_;
  std::vector<uint32_t> bytes_begin_;
  uint32_t depth_ = 0;
  bool has_byte_[256] = {};
};

}  // namespace hearth::grammar
