// Which tokens may come at a configuration of a grammar, as a mask over the vocabulary.
//
// Walking the whole trie costs milliseconds where nearly every token may come: inside a string. But
// what may come there is decided by the string alone, but for the tokens that go beyond its end. So
// for such a state of a leaf two things are kept: the mask of the tokens that stay within the leaf,
// and the places in the trie where the leaf ends. The rest is walked from those places, each time
// with what follows this leaf here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/model/grammar/dfa.h"
#include "runtime/model/grammar/machine.h"
#include "runtime/model/grammar/token_trie.h"

namespace hearth::grammar {

// What one state of a leaf allows.
struct LeafMask {
  struct Exit {
    uint32_t node;        // of the trie; the leaf may end behind it, and it has children
    uint32_t characters;  // that were begun on the way
  };
  std::vector<uint64_t> inside;  // tokens that end inside the leaf, or with it
  // As `inside`, but of those only the ones that end with the leaf, by how many characters were
  // begun: they need the least count of the string to be reached.
  struct Ending {
    TokenId token;
    uint32_t characters;
  };
  std::vector<Ending> endings;
  std::vector<Exit> exits;

  size_t MemoryBytes() const;
};

// Keeps the masks of leaves. Any number of threads at once.
class LeafMasks {
 public:
  LeafMasks(std::shared_ptr<const TokenTrie> trie, uint64_t budget_bytes);

  // `characters_left` that may still begin. `dfa` must outlive this.
  std::shared_ptr<const LeafMask> Get(const Dfa& dfa, uint32_t state, uint64_t characters_left);

  const TokenTrie& trie() const { return *trie_; }
  size_t MemoryBytes() const;

 private:
  struct Key {
    const Dfa* dfa;
    uint32_t state;
    uint32_t characters_left;  // no higher than the trie is deep
    bool operator==(const Key&) const = default;
    template <class H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.dfa, k.state, k.characters_left);
    }
  };

  const std::shared_ptr<const TokenTrie> trie_;
  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<Key, std::shared_ptr<const LeafMask>> masks_;  // guarded by mutex_
  std::list<Key> order_;                                             // oldest first; likewise
  uint64_t kept_bytes_ = 0;                                          // likewise
};

// The masks of the leaves that all grammars of a store share, and of one grammar's own.
struct LeafMaskSources {
  std::shared_ptr<LeafMasks> common;
  std::shared_ptr<LeafMasks> own;
  // Which leaves are common; sorted.
  std::shared_ptr<const std::vector<const Dfa*>> common_leaves;
  std::shared_ptr<const void> owner;  // of the common leaves
};

// Computes masks for one machine. One thread.
class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const TokenTrie> trie, LeafMaskSources sources);

  // Fills `mask` (trie.words() words) with what may come at `config`; no token that ends a text.
  void Compute(Machine& machine, ConfigId config, std::span<uint64_t> mask);

 private:
  bool ComputeByParts(Machine& machine, ConfigId config, std::span<uint64_t> mask);
  void AddLeaf(Machine& machine, StackId thread, std::span<uint64_t> mask);
  void Walk(Machine& machine, ConfigId config, uint32_t begin, uint32_t end, uint32_t depth,
            std::span<uint64_t> mask);
  LeafMasks& MasksOf(const Dfa& dfa) const;

  std::shared_ptr<const TokenTrie> trie_;
  LeafMaskSources sources_;
  std::vector<ConfigId> path_;    // by depth
  std::vector<uint32_t> narrow_;  // threads of the configuration that are walked
};

}  // namespace hearth::grammar
