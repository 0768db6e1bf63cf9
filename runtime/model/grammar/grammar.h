// A compiled grammar: leaves are automata over bytes; sequences, choices, arrays and objects say
// how they follow each other. Immutable once built: any number of threads may use one at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/base/units.h"
#include "runtime/model/grammar/dfa.h"

namespace hearth::grammar {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

// Frames in progress at once. A level of JSON takes one, what is around and inside it a few more.
inline constexpr uint32_t kStackFramesMax = 72;
inline constexpr uint32_t kNodesMax = 100'000;           // of one grammar
inline constexpr uint64_t kAutomataBytesMax = 32_MiB;    // of one grammar
inline constexpr uint32_t kUnbounded = UINT32_MAX;       // of a count
inline constexpr uint32_t kNeverCompletes = UINT32_MAX;  // as a height

enum class NodeKind : uint8_t {
  kNever,     // nothing at all
  kLeaf,      // dfa, with count_min to count_max characters where its states count any
  kToken,     // one added token
  kSequence,  // children, one after another
  kChoice,    // one of children
  kArray,     // open, items with separators between them, close
  kObject,    // open, entries, close
};

// A member of an object, its name and its value. `first` has no comma in front, `next` has one.
struct ObjectEntry {
  NodeId first = kNoNode;
  NodeId next = kNoNode;
  bool required = false;
};

struct Node {
  NodeKind kind = NodeKind::kNever;
  bool any_order = false;  // object: entries in any order, at most 64
  uint32_t dfa = 0;
  TokenId token = 0;
  uint32_t count_min = 0;  // characters, items or members
  uint32_t count_max = kUnbounded;
  std::vector<NodeId> children;  // array: the first items, which have nodes of their own
  NodeId item = kNoNode;         // array: items after those; kNoNode: none
  NodeId open = kNoNode;
  NodeId separator = kNoNode;
  NodeId close = kNoNode;
  std::vector<ObjectEntry> entries;
  std::vector<uint32_t>
      required_from;                  // object: required entries of those from i on; [entries + 1]
  ObjectEntry additional;             // object: kNoNode: none but `entries`
  uint32_t height = kNeverCompletes;  // frames that the shortest way through it needs
};

class Grammar {
 public:
  const Node& node(NodeId id) const { return nodes_[id]; }
  const Dfa& dfa(const Node& node) const { return *dfas_[node.dfa]; }
  NodeId root() const { return root_; }
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size()); }
  size_t MemoryBytes() const { return memory_bytes_; }

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const Dfa>> dfas_;
  NodeId root_ = kNoNode;
  size_t memory_bytes_ = 0;
};

// Nodes are added bottom up, but for recursion: Reserve, then Fill. What goes beyond a limit is
// reported by Finish; until then every call is harmless.
class GrammarBuilder {
 public:
  GrammarBuilder();

  NodeId Leaf(std::shared_ptr<const Dfa> dfa, uint32_t count_min = 0,
              uint32_t count_max = kUnbounded);
  NodeId Literal(std::string_view text);  // the same node for the same text
  NodeId Token(TokenId token);
  NodeId Never() const { return 0; }
  NodeId Sequence(std::vector<NodeId> children);
  NodeId Choice(std::vector<NodeId> children);
  NodeId Add(Node node);

  NodeId Reserve();
  void Fill(NodeId reserved, NodeId meaning);

  const absl::Status& status() const { return status_; }  // of the limits so far

  // InvalidArgument: no finite text satisfies `root`. ResourceExhausted: beyond a limit.
  absl::StatusOr<std::shared_ptr<const Grammar>> Finish(NodeId root) &&;

 private:
  uint32_t HeightOf(const Node& node) const;
  uint32_t HeightOfObject(const Node& node) const;
  void ComputeHeights();
  void DropUnreachableEntries();

  Grammar grammar_;
  absl::flat_hash_map<std::string, NodeId> literals_;
  absl::flat_hash_map<const Dfa*, uint32_t> dfa_numbers_;
  absl::Status status_;
};

}  // namespace hearth::grammar
