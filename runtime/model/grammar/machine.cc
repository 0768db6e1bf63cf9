// Steps of a grammar: what a byte does to each open way, and what is entered next.
#include "runtime/model/grammar/machine.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace hearth::grammar {
namespace {

// Phases of an array.
constexpr uint32_t kOpened = 0;
constexpr uint32_t kAfterItem = 1;
constexpr uint32_t kAfterSeparator = 2;

// The count of items or members, no higher than where it stops to matter.
uint64_t Capped(uint64_t count, uint32_t max, uint64_t matters) {
  return max == kUnbounded ? std::min(count, matters) : count;
}

}  // namespace

Machine::Machine(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) { Reset(); }

void Machine::Reset() {
  stacks_.assign(1, {.top = {}, .below = kEmptyStack, .depth = 0});
  stack_ids_.clear();
  threads_.clear();
  ranges_.assign(1, {0, 0});
  finished_.assign(1, false);
  config_ids_.clear();
  config_ids_.emplace(std::vector<StackId>(), kDeadConfig);
  rows_.assign(1, kNoRow);
  steps_.clear();
}

ConfigId Machine::Start() {
  Enter(grammar_->root(), kEmptyStack);
  return Intern();
}

ConfigId Machine::TakeStep(ConfigId config, uint8_t byte) {
  const auto [begin, count] = ranges_[config];
  for (uint32_t i = 0; i < count; ++i) StepThread(threads_[begin + i], byte);
  const ConfigId next = Intern();
  if (rows_[config] == kNoRow) {
    rows_[config] = static_cast<uint32_t>(steps_.size() / 256);
    steps_.resize(steps_.size() + 256, kUnknown);
  }
  steps_[size_t{rows_[config]} * 256 + byte] = next;
  return next;
}

void Machine::StepThread(StackId thread, uint8_t byte) {
  if (thread == kEmptyStack) return;
  const Stack at = stacks_[thread];
  const Node& node = grammar_->node(at.top.node);
  if (node.kind != NodeKind::kLeaf) return;
  const Dfa& dfa = grammar_->dfa(node);
  const uint32_t to = dfa.Next(at.top.state, byte);
  if (to == Dfa::kDead) return;
  uint64_t characters = at.top.value;
  if (dfa.BeginsCharacter(at.top.state, to)) {
    if (characters >= node.count_max) return;
    characters = Capped(characters + 1, node.count_max, node.count_min);
  } else if (dfa.BeginsEnd(at.top.state, to) && characters < node.count_min) {
    return;
  }
  if (!dfa.Ends(to)) {
    Emit(Push({.node = at.top.node, .state = to, .value = characters}, at.below));
  }
  if (dfa.Accepts(to)) Return(at.below);
}

ConfigId Machine::StepToken(ConfigId config, TokenId token) {
  const auto [begin, count] = ranges_[config];
  for (uint32_t i = 0; i < count; ++i) {
    const StackId thread = threads_[begin + i];
    if (thread == kEmptyStack) continue;
    const Stack at = stacks_[thread];
    const Node& node = grammar_->node(at.top.node);
    if (node.kind == NodeKind::kToken && node.token == token) Return(at.below);
  }
  return Intern();
}

ConfigId Machine::AfterLeaf(StackId stack) {
  Return(stacks_[stack].below);
  return Intern();
}

ConfigId Machine::Only(ConfigId config, std::span<const uint32_t> chosen) {
  const uint32_t begin = ranges_[config].first;
  for (const uint32_t i : chosen) Emit(threads_[begin + i]);
  return Intern();
}

StackId Machine::Push(const Frame& frame, StackId below) {
  const auto [it, is_new] =
      stack_ids_.try_emplace({frame, below}, static_cast<StackId>(stacks_.size()));
  if (is_new) {
    stacks_.push_back({.top = frame, .below = below, .depth = stacks_[below].depth + 1});
  }
  return it->second;
}

bool Machine::Fits(NodeId node, uint32_t depth) const {
  if (node == kNoNode) return false;
  const uint32_t height = grammar_->node(node).height;
  return height != kNeverCompletes && depth + height <= kStackFramesMax;
}

// Nothing is entered that could not be completed within the depth there is: so every open way has
// an end.
void Machine::Enter(NodeId id, StackId below) {
  if (!Fits(id, stacks_[below].depth)) return;
  const Node& node = grammar_->node(id);
  switch (node.kind) {
    case NodeKind::kNever:
      return;
    case NodeKind::kLeaf: {
      const Dfa& dfa = grammar_->dfa(node);
      if (!dfa.Ends(Dfa::kStart)) Emit(Push({.node = id}, below));
      if (dfa.Accepts(Dfa::kStart)) Return(below);
      return;
    }
    case NodeKind::kToken:
      Emit(Push({.node = id}, below));
      return;
    case NodeKind::kSequence:
      EnterChild(node, id, 0, below);
      return;
    case NodeKind::kChoice:
      if (!entered_.insert({id, below}).second) return;
      for (const NodeId child : node.children) Enter(child, below);
      return;
    case NodeKind::kArray:
      Enter(node.open, Push({.node = id, .state = kOpened, .value = 0}, below));
      return;
    case NodeKind::kObject:
      Enter(node.open, Push({.node = id, .state = 0, .value = 0}, below));
      return;
  }
}

void Machine::EnterChild(const Node& node, NodeId id, uint32_t child, StackId below) {
  const bool last = child + 1 == node.children.size();
  Enter(node.children[child], last ? below : Push({.node = id, .state = child}, below));
}

// The top frame's part in progress is complete.
void Machine::Return(StackId stack) {
  if (stack == kEmptyStack) return Emit(kEmptyStack);
  const Stack at = stacks_[stack];
  const Node& node = grammar_->node(at.top.node);
  switch (node.kind) {
    case NodeKind::kSequence:
      return EnterChild(node, at.top.node, at.top.state + 1, at.below);
    case NodeKind::kArray:
      return AfterArrayPart(node, at.top, at.below);
    case NodeKind::kObject:
      return AfterObjectPart(node, at.top, at.below);
    default:
      HEARTH_CHECK(false);
  }
}

void Machine::EnterItem(const Node& node, NodeId id, uint64_t count, StackId below) {
  const NodeId item = count < node.children.size() ? node.children[count] : node.item;
  if (!Fits(item, stacks_[below].depth + 1)) return;
  const uint64_t matters = std::max<uint64_t>(node.count_min, node.children.size());
  const uint64_t next = Capped(count + 1, node.count_max, matters);
  Enter(item, Push({.node = id, .state = kAfterItem, .value = next}, below));
}

void Machine::AfterArrayPart(const Node& node, const Frame& frame, StackId below) {
  const uint64_t count = frame.value;
  if (frame.state == kAfterSeparator) return EnterItem(node, frame.node, count, below);
  if (count < node.count_max) {
    if (frame.state == kOpened) {
      EnterItem(node, frame.node, count, below);
    } else {
      const NodeId item = count < node.children.size() ? node.children[count] : node.item;
      if (Fits(item, stacks_[below].depth + 1)) {
        const Frame next = {.node = frame.node, .state = kAfterSeparator, .value = count};
        Enter(node.separator, Push(next, below));
      }
    }
  }
  if (count >= node.count_min) Enter(node.close, below);
}

// Whether the object can still be completed once `entry` is taken.
bool Machine::MayTakeEntry(const Node& node, const Frame& frame, size_t entry,
                           uint32_t depth) const {
  if (node.count_min == 0 && node.count_max == kUnbounded) return true;
  uint32_t required_left = 0;
  uint64_t possible_left = 0;
  for (size_t i = node.any_order ? 0 : entry + 1; i < node.entries.size(); ++i) {
    if (i == entry || (node.any_order && (frame.value >> i & 1) != 0)) continue;
    required_left += node.entries[i].required ? 1 : 0;
    possible_left += Fits(node.entries[i].next, depth) ? 1 : 0;
  }
  const uint64_t count = uint64_t{frame.state} + 1;
  if (node.count_max != kUnbounded && count + required_left > node.count_max) return false;
  return Fits(node.additional.next, depth) || count + possible_left >= node.count_min;
}

void Machine::EnterEntry(const Node& node, const Frame& frame, const ObjectEntry& entry,
                         uint64_t value, StackId below) {
  const NodeId id = frame.state == 0 ? entry.first : entry.next;
  if (!Fits(id, stacks_[below].depth + 1)) return;
  const uint64_t count =
      Capped(uint64_t{frame.state} + 1, node.count_max, std::max<uint64_t>(node.count_min, 1));
  const Frame next = {.node = frame.node, .state = static_cast<uint32_t>(count), .value = value};
  Enter(id, Push(next, below));
}

void Machine::AfterObjectPart(const Node& node, const Frame& frame, StackId below) {
  uint32_t required_left = 0;
  for (size_t i = node.any_order ? 0 : frame.value; i < node.entries.size(); ++i) {
    if (node.any_order && (frame.value >> i & 1) != 0) continue;
    const ObjectEntry& entry = node.entries[i];
    if (MayTakeEntry(node, frame, i, stacks_[below].depth + 1)) {
      const uint64_t value = node.any_order ? frame.value | uint64_t{1} << i : i + 1;
      EnterEntry(node, frame, entry, value, below);
    }
    if (!entry.required) continue;
    ++required_left;
    if (!node.any_order) break;  // it comes before all that follows
  }
  const bool room = node.count_max == kUnbounded || frame.state + required_left < node.count_max;
  if (node.additional.first != kNoNode && room && (node.any_order || required_left == 0)) {
    const uint64_t value = node.any_order ? frame.value : node.entries.size();
    EnterEntry(node, frame, node.additional, value, below);
  }
  if (required_left == 0 && frame.state >= node.count_min) Enter(node.close, below);
}

void Machine::Emit(StackId thread) {
  if (found_set_.insert(thread).second) found_.push_back(thread);
}

ConfigId Machine::Intern() {
  most_threads_ = std::max(most_threads_, static_cast<uint32_t>(found_.size()));
  if (found_.size() > kThreadsMax) found_.resize(kThreadsMax);
  const auto [it, is_new] = config_ids_.try_emplace(found_, static_cast<ConfigId>(ranges_.size()));
  if (is_new) {
    ranges_.push_back(
        {static_cast<uint32_t>(threads_.size()), static_cast<uint32_t>(found_.size())});
    threads_.insert(threads_.end(), found_.begin(), found_.end());
    finished_.push_back(found_set_.contains(kEmptyStack) &&
                        std::find(found_.begin(), found_.end(), kEmptyStack) != found_.end());
    rows_.push_back(kNoRow);
  }
  found_.clear();
  found_set_.clear();
  entered_.clear();
  return it->second;
}

size_t Machine::MemoryBytes() const {
  // Hash entries, their control bytes and spare room: about twice what they hold.
  return stacks_.size() *
             (sizeof(Stack) + 2 * sizeof(std::pair<std::pair<Frame, StackId>, StackId>)) +
         threads_.size() * 3 * sizeof(StackId) + ranges_.size() * 96 +
         steps_.size() * sizeof(ConfigId);
}

void Machine::Forget(std::span<ConfigId> kept) {
  std::vector<Stack> old_stacks = std::move(stacks_);
  std::vector<StackId> old_threads = std::move(threads_);
  std::vector<std::pair<uint32_t, uint32_t>> old_ranges = std::move(ranges_);
  Reset();
  std::vector<StackId> number(old_stacks.size(), UINT32_MAX);
  number[kEmptyStack] = kEmptyStack;
  std::vector<StackId> way;
  for (ConfigId& config : kept) {
    const auto [begin, count] = old_ranges[config];
    for (uint32_t i = 0; i < count; ++i) {
      StackId at = old_threads[begin + i];
      for (; number[at] == UINT32_MAX; at = old_stacks[at].below) way.push_back(at);
      for (; !way.empty(); way.pop_back()) {
        const Stack& old = old_stacks[way.back()];
        number[way.back()] = Push(old.top, number[old.below]);
      }
      Emit(number[old_threads[begin + i]]);
    }
    config = Intern();
  }
}

}  // namespace hearth::grammar
