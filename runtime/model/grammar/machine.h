// Runs a grammar over bytes: which ways through it are open after what was written so far. A way is
// a stack of frames; the open ways together are a configuration. Both are kept once each and known
// by number, and steps that were taken before are looked up. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "runtime/base/ids.h"
#include "runtime/model/grammar/grammar.h"

namespace hearth::grammar {

// Ways open at once. Of more than these the first found are kept: what they lead to is still valid.
inline constexpr uint32_t kThreadsMax = 1024;

struct Frame {
  uint32_t node = 0;
  // Leaf: state of its automaton. Sequence: the child in progress. Array: phase. Object: members.
  uint32_t state = 0;
  // Leaf: characters. Array: items. Object: the next entry, or which ones were (any order).
  uint64_t value = 0;
  bool operator==(const Frame&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const Frame& f) {
    return H::combine(std::move(h), f.node, f.state, f.value);
  }
};

using StackId = uint32_t;  // a frame and what is below it
inline constexpr StackId kEmptyStack = 0;

using ConfigId = uint32_t;
inline constexpr ConfigId kDeadConfig = 0;

class Machine {
 public:
  struct Stack {
    Frame top;
    StackId below;
    uint32_t depth;
  };

  explicit Machine(std::shared_ptr<const Grammar> grammar);

  ConfigId Start();
  // kDeadConfig: the byte may not come here.
  ConfigId Step(ConfigId config, uint8_t byte) {
    const uint32_t row = rows_[config];
    if (row != kNoRow) {
      const ConfigId known = steps_[size_t{row} * 256 + byte];
      if (known != kUnknown) return known;
    }
    return TakeStep(config, byte);
  }
  ConfigId StepToken(ConfigId config, TokenId token);  // an added token
  // What is open once the leaf on top of `stack` is complete.
  ConfigId AfterLeaf(StackId stack);
  // The ways of `config` whose numbers in it `chosen` has.
  ConfigId Only(ConfigId config, std::span<const uint32_t> chosen);

  bool Finished(ConfigId config) const { return finished_[config]; }  // nothing need follow
  // In the order they were found. Tops are leaves or tokens, but for kEmptyStack.
  std::span<const StackId> Threads(ConfigId config) const {
    const auto& [begin, count] = ranges_[config];
    return {threads_.data() + begin, count};
  }
  const Stack& stack(StackId id) const { return stacks_[id]; }
  const Grammar& grammar() const { return *grammar_; }

  // The most ways that any configuration so far had.
  uint32_t most_threads() const { return most_threads_; }
  size_t MemoryBytes() const;
  // Forgets all but `kept`, which are renumbered in place.
  void Forget(std::span<ConfigId> kept);

 private:
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr ConfigId kUnknown = UINT32_MAX;

  ConfigId TakeStep(ConfigId config, uint8_t byte);
  void StepThread(StackId thread, uint8_t byte);
  StackId Push(const Frame& frame, StackId below);
  bool Fits(NodeId node, uint32_t depth) const;
  void Enter(NodeId node, StackId below);
  void EnterChild(const Node& node, NodeId id, uint32_t child, StackId below);
  void Return(StackId stack);
  void AfterArrayPart(const Node& node, const Frame& frame, StackId below);
  void EnterItem(const Node& node, NodeId id, uint64_t count, StackId below);
  void AfterObjectPart(const Node& node, const Frame& frame, StackId below);
  bool MayTakeEntry(const Node& node, const Frame& frame, size_t entry, uint32_t depth) const;
  void EnterEntry(const Node& node, const Frame& frame, const ObjectEntry& entry, uint64_t value,
                  StackId below);
  void Emit(StackId thread);
  ConfigId Intern();
  void Reset();

  std::shared_ptr<const Grammar> grammar_;

  std::vector<Stack> stacks_;
  absl::flat_hash_map<std::pair<Frame, StackId>, StackId> stack_ids_;

  std::vector<StackId> threads_;                       // of all configurations
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // per configuration: begin, count
  std::vector<bool> finished_;
  absl::flat_hash_map<std::vector<StackId>, ConfigId> config_ids_;
  std::vector<uint32_t> rows_;   // per configuration: its row of steps_
  std::vector<ConfigId> steps_;  // [row][byte]
  uint32_t most_threads_ = 0;

  std::vector<StackId> found_;  // what the step in progress has reached
  absl::flat_hash_set<StackId> found_set_;
  absl::flat_hash_set<std::pair<NodeId, StackId>> entered_;  // choices of the step in progress
};

}  // namespace hearth::grammar
