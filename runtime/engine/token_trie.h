// A radix tree over token sequences: values at sequences, found along every prefix of a longer one.
// Tokens themselves are compared, never hashes of them. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"

namespace hearth {

template <class Value>
class TokenTrie {
 public:
  // The value at `tokens`, made if there is none. Good until it is erased.
  Value& At(std::span<const TokenId> tokens) {
    Node* node = &root_;
    while (!tokens.empty()) {
      const size_t at = ChildIndex(*node, tokens[0]);
      if (at == node->children.size() || node->children[at]->label[0] != tokens[0]) {
        auto child = std::make_unique<Node>();
        child->label.assign(tokens.begin(), tokens.end());
        bytes_ += BytesOf(*child);
        node = node->children
                   .insert(node->children.begin() + static_cast<ptrdiff_t>(at), std::move(child))
                   ->get();
        break;
      }
      const size_t shared = SharedLength(node->children[at]->label, tokens);
      if (shared < node->children[at]->label.size()) Split(node->children[at], shared);
      node = node->children[at].get();
      tokens = tokens.subspan(shared);
    }
    if (!node->value) {
      node->value.emplace();
      ++value_count_;
    }
    return *node->value;
  }

  // visit(length, value) for each prefix of `tokens` that has a value, by rising length.
  template <class Visit>
  void VisitPrefixes(std::span<const TokenId> tokens, Visit visit) {
    Node* node = &root_;
    uint32_t length = 0;
    for (;;) {
      if (node->value) visit(length, *node->value);
      const std::span<const TokenId> rest = tokens.subspan(length);
      if (rest.empty()) return;
      const size_t at = ChildIndex(*node, rest[0]);
      if (at == node->children.size()) return;
      Node& child = *node->children[at];
      if (SharedLength(child.label, rest) != child.label.size()) return;
      node = &child;
      length += static_cast<uint32_t>(child.label.size());
    }
  }

  // uint64_t visit(length, value, largest) for every value, those below it first; `largest` is of
  // what the visitor returned for any of them, 0 without any.
  template <class Visit>
  void VisitFromLeaves(Visit visit) {
    VisitFrom(root_, 0, visit);
  }

  // Erases values for which erase(value) is true, and what only led to them.
  template <class Erase>
  void EraseIf(Erase erase) {
    EraseBelow(root_, erase);
    if (root_.value && erase(*root_.value)) DropValue(root_);
  }

  size_t value_count() const { return value_count_; }
  // What nodes and tokens take, values included.
  uint64_t bytes() const { return bytes_; }
  // What At() adds to that for a sequence of `token_count` at most.
  static uint64_t InsertBytesMax(size_t token_count) {
    return 2 * (sizeof(Node) + sizeof(std::unique_ptr<Node>)) + token_count * sizeof(TokenId);
  }

 private:
  struct Node {
    std::vector<TokenId> label;  // not empty but for the root
    std::optional<Value> value;
    std::vector<std::unique_ptr<Node>> children;  // by rising first token
  };

  static uint64_t BytesOf(const Node& node) {
    return sizeof(Node) + sizeof(std::unique_ptr<Node>) + node.label.size() * sizeof(TokenId);
  }
  // The first child whose label does not begin below `first`.
  static size_t ChildIndex(const Node& node, TokenId first) {
    const auto it = std::lower_bound(
        node.children.begin(), node.children.end(), first,
        [](const std::unique_ptr<Node>& child, TokenId t) { return child->label[0] < t; });
    return static_cast<size_t>(it - node.children.begin());
  }
  static size_t SharedLength(std::span<const TokenId> a, std::span<const TokenId> b) {
    const size_t most = std::min(a.size(), b.size());
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
        a.begin());
  }

  // A node for the first `length` tokens of the label takes the node's place.
  void Split(std::unique_ptr<Node>& place, size_t length) {
    auto head = std::make_unique<Node>();
    const auto at = place->label.begin() + static_cast<ptrdiff_t>(length);
    bytes_ -= BytesOf(*place);
    head->label.assign(place->label.begin(), at);
    place->label = std::vector<TokenId>(at, place->label.end());
    bytes_ += BytesOf(*place) + BytesOf(*head);
    std::swap(place, head);
    place->children.push_back(std::move(head));
  }

  // A node without a value whose only child takes its place, with both labels.
  void Join(std::unique_ptr<Node>& place) {
    std::unique_ptr<Node> child = std::move(place->children[0]);
    bytes_ -= BytesOf(*place) + BytesOf(*child);
    child->label.insert(child->label.begin(), place->label.begin(), place->label.end());
    bytes_ += BytesOf(*child);
    place = std::move(child);
  }

  template <class Visit>
  uint64_t VisitFrom(Node& node, uint32_t length, Visit& visit) {
    length += static_cast<uint32_t>(node.label.size());
    uint64_t largest = 0;
    for (const std::unique_ptr<Node>& child : node.children) {
      largest = std::max(largest, VisitFrom(*child, length, visit));
    }
    return node.value ? std::max(largest, visit(length, *node.value, largest)) : largest;
  }

  template <class Erase>
  void EraseBelow(Node& node, Erase& erase) {
    for (std::unique_ptr<Node>& child : node.children) {
      EraseBelow(*child, erase);
      if (child->value && erase(*child->value)) DropValue(*child);
      if (child->value) continue;
      if (child->children.size() == 1) Join(child);
      if (!child->value && child->children.empty()) {
        bytes_ -= BytesOf(*child);
        child.reset();
      }
    }
    std::erase(node.children, nullptr);
  }
  void DropValue(Node& node) {
    node.value.reset();
    --value_count_;
  }

  Node root_;
  size_t value_count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace hearth
