// Building of the trie from the tokens in the order of their bytes.
#include "runtime/model/grammar/token_trie.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::grammar {

std::shared_ptr<const TokenTrie> TokenTrie::FromTokenizer(const Tokenizer& tokenizer,
                                                          uint32_t vocab_count) {
  std::vector<std::string_view> bytes(std::max(tokenizer.vocab_count(), vocab_count));
  for (uint32_t i = 0; i < tokenizer.vocab_count(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    if (!tokenizer.IsAdded(token)) bytes[i] = tokenizer.TokenBytes(token);
  }
  return FromBytes(bytes);
}

std::shared_ptr<const TokenTrie> TokenTrie::FromBytes(
    std::span<const std::string_view> token_bytes) {
  const std::shared_ptr<TokenTrie> trie(new TokenTrie);
  std::vector<TokenId> order;
  trie->bytes_begin_.push_back(0);
  for (size_t i = 0; i < token_bytes.size(); ++i) {
    if (!token_bytes[i].empty() && token_bytes[i].size() <= UINT16_MAX) {
      trie->bytes_.append(token_bytes[i]);
      order.push_back(static_cast<TokenId>(i));
    }
    trie->bytes_begin_.push_back(static_cast<uint32_t>(trie->bytes_.size()));
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const std::string_view left = token_bytes[static_cast<size_t>(a)];
    const std::string_view right = token_bytes[static_cast<size_t>(b)];
    return left != right ? left < right : a < b;
  });
  std::vector<uint32_t> path;  // the open nodes, from the root's child down
  for (const TokenId token : order) {
    trie->AddToken(token, token_bytes[static_cast<size_t>(token)], path);
  }
  const uint32_t end = static_cast<uint32_t>(trie->nodes_.size());
  for (const uint32_t node : path) trie->nodes_[node].skip = end;
  trie->nodes_.push_back({.skip = end,
                          .tokens_begin = static_cast<uint32_t>(trie->tokens_.size()),
                          .depth = 0,
                          .byte = 0});
  return trie;
}

// Tokens come in the order of their bytes: a prefix of one comes before it.
void TokenTrie::AddToken(TokenId token, std::string_view bytes, std::vector<uint32_t>& path) {
  size_t common = 0;
  while (common < path.size() && common < bytes.size() &&
         nodes_[path[common]].byte == static_cast<uint8_t>(bytes[common])) {
    ++common;
  }
  for (size_t i = common; i < path.size(); ++i) {
    nodes_[path[i]].skip = static_cast<uint32_t>(nodes_.size());
  }
  path.resize(common);
  for (size_t i = common; i < bytes.size(); ++i) {
    path.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.push_back({.skip = 0,
                      .tokens_begin = static_cast<uint32_t>(tokens_.size()),
                      .depth = static_cast<uint16_t>(i + 1),
                      .byte = static_cast<uint8_t>(bytes[i])});
  }
  tokens_.push_back(token);
  depth_ = std::max(depth_, static_cast<uint32_t>(bytes.size()));
  if (bytes.size() == 1) has_byte_[static_cast<uint8_t>(bytes[0])] = true;
}

}  // namespace hearth::grammar
