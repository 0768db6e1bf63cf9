// Building of grammars, and the check that every part of one can be completed.
#include "runtime/model/grammar/grammar.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth::grammar {
namespace {

uint32_t OneMore(uint32_t height) { return height == kNeverCompletes ? height : height + 1; }

}  // namespace

GrammarBuilder::GrammarBuilder() {
  grammar_.nodes_.emplace_back();  // Never
}

NodeId GrammarBuilder::Add(Node node) {
  if (grammar_.nodes_.size() >= kNodesMax || grammar_.memory_bytes_ > kAutomataBytesMax) {
    if (status_.ok()) {
      status_ = absl::ResourceExhaustedError(absl::StrCat("the schema needs over ", kNodesMax,
                                                          " nodes or ", kAutomataBytesMax / 1_MiB,
                                                          " MiB of automata; use a smaller one"));
    }
    return Never();
  }
  grammar_.memory_bytes_ += sizeof(Node) + node.children.size() * sizeof(NodeId) +
                            node.entries.size() * (sizeof(ObjectEntry) + sizeof(uint32_t));
  grammar_.nodes_.push_back(std::move(node));
  return static_cast<NodeId>(grammar_.nodes_.size() - 1);
}

NodeId GrammarBuilder::Leaf(std::shared_ptr<const Dfa> dfa, uint32_t count_min,
                            uint32_t count_max) {
  const auto [it, is_new] =
      dfa_numbers_.try_emplace(dfa.get(), static_cast<uint32_t>(grammar_.dfas_.size()));
  const uint32_t number = it->second;
  if (is_new) {
    grammar_.memory_bytes_ += dfa->MemoryBytes();
    grammar_.dfas_.push_back(std::move(dfa));
  }
  Node node;
  node.kind = NodeKind::kLeaf;
  node.dfa = number;
  node.count_min = count_min;
  node.count_max = count_max;
  return Add(std::move(node));
}

NodeId GrammarBuilder::Literal(std::string_view text) {
  const auto it = literals_.find(ToAbsl(text));
  if (it != literals_.end()) return it->second;
  const NodeId id = Leaf(std::make_shared<const Dfa>(LiteralDfa(text)));
  literals_.emplace(std::string(text), id);
  return id;
}

NodeId GrammarBuilder::Token(TokenId token) {
  Node node;
  node.kind = NodeKind::kToken;
  node.token = token;
  return Add(std::move(node));
}

NodeId GrammarBuilder::Sequence(std::vector<NodeId> children) {
  HEARTH_CHECK(!children.empty());
  if (children.size() == 1) return children[0];
  Node node;
  node.kind = NodeKind::kSequence;
  node.children = std::move(children);
  return Add(std::move(node));
}

NodeId GrammarBuilder::Choice(std::vector<NodeId> children) {
  std::vector<NodeId> kept;
  for (const NodeId child : children) {
    if (child == Never() || std::find(kept.begin(), kept.end(), child) != kept.end()) continue;
    kept.push_back(child);
  }
  if (kept.empty()) return Never();
  if (kept.size() == 1) return kept[0];
  Node node;
  node.kind = NodeKind::kChoice;
  node.children = std::move(kept);
  return Add(std::move(node));
}

NodeId GrammarBuilder::Reserve() { return Add(Node()); }

void GrammarBuilder::Fill(NodeId reserved, NodeId meaning) {
  if (reserved == Never()) return;  // beyond a limit
  Node& node = grammar_.nodes_[reserved];
  node.kind = NodeKind::kChoice;
  node.children = {meaning};
}

uint32_t GrammarBuilder::HeightOf(const Node& node) const {
  const auto height = [&](NodeId id) {
    return id == kNoNode ? kNeverCompletes : grammar_.nodes_[id].height;
  };
  uint32_t most = 1;
  switch (node.kind) {
    case NodeKind::kNever:
      return kNeverCompletes;
    case NodeKind::kLeaf:
    case NodeKind::kToken:
      return 1;
    case NodeKind::kSequence:
      for (const NodeId child : node.children) most = std::max(most, height(child));
      return OneMore(most);
    case NodeKind::kChoice: {
      uint32_t least = kNeverCompletes;
      for (const NodeId child : node.children) least = std::min(least, height(child));
      return least;
    }
    case NodeKind::kArray:
      for (uint32_t i = 0; i < std::min<size_t>(node.count_min, node.children.size()); ++i) {
        most = std::max(most, height(node.children[i]));
      }
      if (node.count_min > node.children.size()) most = std::max(most, height(node.item));
      return OneMore(most);
    case NodeKind::kObject:
      return HeightOfObject(node);
  }
  return kNeverCompletes;
}

// The required members, and the cheapest others where there must be more of them.
uint32_t GrammarBuilder::HeightOfObject(const Node& node) const {
  const auto height = [&](const ObjectEntry& entry) {
    return entry.first == kNoNode
               ? kNeverCompletes
               : std::max(grammar_.nodes_[entry.first].height, grammar_.nodes_[entry.next].height);
  };
  uint32_t most = 1;
  uint32_t required_count = 0;
  std::vector<uint32_t> others;
  for (const ObjectEntry& entry : node.entries) {
    if (!entry.required) {
      others.push_back(height(entry));
      continue;
    }
    ++required_count;
    most = std::max(most, height(entry));
  }
  if (std::max(required_count, node.count_min) > node.count_max) return kNeverCompletes;
  if (node.count_min <= required_count) return OneMore(most);
  const uint32_t missing = node.count_min - required_count;
  std::sort(others.begin(), others.end());
  uint32_t least = kNeverCompletes;
  for (size_t taken = 0; taken <= std::min<size_t>(missing, others.size()); ++taken) {
    uint32_t of_these = taken == 0 ? 1 : others[taken - 1];
    if (taken < missing) of_these = std::max(of_these, height(node.additional));
    least = std::min(least, of_these);
  }
  return OneMore(std::max(most, least));
}

// Heights only fall, from "never" to what the shortest way needs.
void GrammarBuilder::ComputeHeights() {
  bool changed = true;
  while (changed) {
    changed = false;
    for (Node& node : grammar_.nodes_) {
      const uint32_t height = HeightOf(node);
      if (height >= node.height) continue;
      node.height = height;
      changed = true;
    }
  }
}

void GrammarBuilder::DropUnreachableEntries() {
  for (Node& node : grammar_.nodes_) {
    if (node.kind != NodeKind::kObject) continue;
    std::erase_if(node.entries, [&](const ObjectEntry& entry) {
      return !entry.required && grammar_.nodes_[entry.first].height == kNeverCompletes;
    });
    node.required_from.assign(node.entries.size() + 1, 0);
    for (size_t i = node.entries.size(); i-- > 0;) {
      node.required_from[i] = node.required_from[i + 1] + (node.entries[i].required ? 1 : 0);
    }
    const NodeId additional = node.additional.first;
    if (additional != kNoNode && grammar_.nodes_[additional].height == kNeverCompletes) {
      node.additional = ObjectEntry();
    }
  }
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarBuilder::Finish(NodeId root) && {
  if (!status_.ok()) return status_;
  ComputeHeights();
  DropUnreachableEntries();
  const uint32_t height = grammar_.nodes_[root].height;
  if (height == kNeverCompletes) {
    return absl::InvalidArgumentError(
        "no value of finite length satisfies the schema; look for types, bounds or lists that "
        "exclude each other, and for a required property that contains its own schema");
  }
  if (height > kStackFramesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shortest value that satisfies the schema is nested deeper than ",
                     kStackFramesMax, " levels"));
  }
  grammar_.root_ = root;
  return std::shared_ptr<const Grammar>(new Grammar(std::move(grammar_)));
}

}  // namespace hearth::grammar
