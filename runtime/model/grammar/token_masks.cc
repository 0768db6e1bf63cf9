// Walks of the trie: with a leaf alone, and with the whole grammar.
#include "runtime/model/grammar/token_masks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace hearth::grammar {
namespace {

void SetTokens(std::span<const TokenId> tokens, std::span<uint64_t> mask) {
  for (const TokenId token : tokens) {
    const uint32_t bit = static_cast<uint32_t>(token);
    mask[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

// Where the walk of a leaf stands after each byte of a path.
struct LeafPlace {
  uint32_t state;
  uint32_t characters;
};

LeafMask WalkLeaf(const TokenTrie& trie, const Dfa& dfa, uint32_t start, uint32_t left) {
  LeafMask mask;
  mask.inside.assign(trie.words(), 0);
  std::vector<LeafPlace> path(size_t{trie.depth()} + 1);
  path[0] = {start, 0};
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const LeafPlace from = path[node.depth - 1u];
    const uint32_t to = dfa.Next(from.state, node.byte);
    uint32_t characters = from.characters;
    if (to != Dfa::kDead && dfa.BeginsCharacter(from.state, to)) ++characters;
    if (to == Dfa::kDead || characters > left) {
      i = node.skip;
      continue;
    }
    const std::span<const TokenId> tokens = trie.TokensAt(i);
    // The end of a counted string is where the least count is checked.
    if ((dfa.Flags(to) & Dfa::kTerminator) != 0) {
      for (const TokenId token : tokens) mask.endings.push_back({token, characters});
    } else {
      SetTokens(tokens, mask.inside);
    }
    if (dfa.Accepts(to) && i + 1 < node.skip) mask.exits.push_back({i, characters});
    path[node.depth] = {to, characters};
    i = dfa.Ends(to) ? node.skip : i + 1;
  }
  return mask;
}

}  // namespace

size_t LeafMask::MemoryBytes() const {
  return sizeof(*this) + inside.size() * sizeof(uint64_t) + endings.size() * sizeof(Ending) +
         exits.size() * sizeof(Exit);
}

LeafMasks::LeafMasks(std::shared_ptr<const TokenTrie> trie, uint64_t budget_bytes)
    : trie_(std::move(trie)), budget_bytes_(budget_bytes) {}

std::shared_ptr<const LeafMask> LeafMasks::Get(const Dfa& dfa, uint32_t state,
                                               uint64_t characters_left) {
  const uint32_t left = static_cast<uint32_t>(std::min<uint64_t>(characters_left, trie_->depth()));
  const Key key = {&dfa, state, left};
  {
    const std::lock_guard lock(mutex_);
    const auto it = masks_.find(key);
    if (it != masks_.end()) return it->second;
  }
  // Two threads may both come here for one key: what they make is the same.
  auto mask = std::make_shared<const LeafMask>(WalkLeaf(*trie_, dfa, state, left));
  const std::lock_guard lock(mutex_);
  if (!masks_.try_emplace(key, mask).second) return mask;
  kept_bytes_ += mask->MemoryBytes();
  order_.push_back(key);
  while (kept_bytes_ > budget_bytes_ && order_.size() > 1) {
    const auto oldest = masks_.find(order_.front());
    kept_bytes_ -= oldest->second->MemoryBytes();
    masks_.erase(oldest);
    order_.pop_front();
  }
  return mask;
}

size_t LeafMasks::MemoryBytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

TokenMasks::TokenMasks(std::shared_ptr<const TokenTrie> trie, LeafMaskSources sources)
    : trie_(std::move(trie)), sources_(std::move(sources)), path_(size_t{trie_->depth()} + 1) {}

void TokenMasks::Compute(Machine& machine, ConfigId config, std::span<uint64_t> mask) {
  std::fill(mask.begin(), mask.end(), 0);
  if (!ComputeByParts(machine, config, mask)) {
    std::fill(mask.begin(), mask.end(), 0);
    Walk(machine, config, 0, static_cast<uint32_t>(trie_->nodes().size()), 0, mask);
  }
  for (const StackId thread : machine.Threads(config)) {
    if (thread == kEmptyStack) continue;
    const Node& node = machine.grammar().node(machine.stack(thread).top.node);
    if (node.kind == NodeKind::kToken) SetTokens({&node.token, 1}, mask);
  }
}

// The ways of a configuration one by one. False where together they could have been more than are
// kept: what is left out then depends on all of them.
bool TokenMasks::ComputeByParts(Machine& machine, ConfigId config, std::span<uint64_t> mask) {
  const std::span<const StackId> threads = machine.Threads(config);
  const std::vector<StackId> copy(threads.begin(), threads.end());
  narrow_.clear();
  for (uint32_t i = 0; i < copy.size(); ++i) {
    if (copy[i] == kEmptyStack) continue;
    const Frame& top = machine.stack(copy[i]).top;
    const Node& node = machine.grammar().node(top.node);
    if (node.kind != NodeKind::kLeaf) continue;
    if (machine.grammar().dfa(node).Wide(top.state)) {
      AddLeaf(machine, copy[i], mask);
    } else {
      narrow_.push_back(i);
    }
  }
  const ConfigId rest = narrow_.size() == copy.size() ? config : machine.Only(config, narrow_);
  Walk(machine, rest, 0, static_cast<uint32_t>(trie_->nodes().size()), 0, mask);
  return uint64_t{machine.most_threads()} * std::max<size_t>(copy.size(), 1) <= kThreadsMax;
}

void TokenMasks::AddLeaf(Machine& machine, StackId thread, std::span<uint64_t> mask) {
  const Frame top = machine.stack(thread).top;
  const Node& node = machine.grammar().node(top.node);
  const Dfa& dfa = machine.grammar().dfa(node);
  const uint64_t left = node.count_max == kUnbounded ? UINT64_MAX : node.count_max - top.value;
  const std::shared_ptr<const LeafMask> leaf = MasksOf(dfa).Get(dfa, top.state, left);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] |= leaf->inside[i];
  const uint64_t missing = node.count_min > top.value ? node.count_min - top.value : 0;
  for (const LeafMask::Ending& ending : leaf->endings) {
    if (ending.characters >= missing) SetTokens({&ending.token, 1}, mask);
  }
  if (leaf->exits.empty()) return;
  const ConfigId after = machine.AfterLeaf(thread);
  for (const LeafMask::Exit& exit : leaf->exits) {
    if (exit.characters < missing) continue;
    const TokenTrie::Node& at = trie_->nodes()[exit.node];
    Walk(machine, after, exit.node + 1, at.skip, at.depth, mask);
  }
}

// The nodes from `begin` to `end`, whose parent is at `depth` and was reached at `config`.
void TokenMasks::Walk(Machine& machine, ConfigId config, uint32_t begin, uint32_t end,
                      uint32_t depth, std::span<uint64_t> mask) {
  path_[depth] = config;
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  for (uint32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    const ConfigId to = machine.Step(path_[node.depth - 1u], node.byte);
    if (to == kDeadConfig) {
      i = node.skip;
      continue;
    }
    path_[node.depth] = to;
    SetTokens(trie_->TokensAt(i), mask);
    ++i;
  }
}

LeafMasks& TokenMasks::MasksOf(const Dfa& dfa) const {
  const bool common =
      std::binary_search(sources_.common_leaves->begin(), sources_.common_leaves->end(), &dfa);
  return common ? *sources_.common : *sources_.own;
}

}  // namespace hearth::grammar
