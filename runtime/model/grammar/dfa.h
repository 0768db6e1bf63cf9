// A deterministic automaton over bytes: the leaves of a grammar. Every state it has is on a way
// from the start to an accepting state. Immutable once finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth::grammar {

class Dfa {
 public:
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr uint32_t kStart = 0;
  // Of one automaton. Tables are at most 256 times this many entries.
  static constexpr uint32_t kStatesMax = 8192;

  // Flags of a state.
  static constexpr uint8_t kAccepting = 1;
  // Between two characters of a string: leaving one for a state that is not the string's end
  // begins a character.
  static constexpr uint8_t kBoundary = 2;
  static constexpr uint8_t kTerminator = 4;  // belongs to the end of the string, counts as none

  uint32_t Next(uint32_t state, uint8_t byte) const {
    return next_[static_cast<size_t>(state) * class_count_ + class_of_[byte]];
  }
  bool Accepts(uint32_t state) const { return (flags_[state] & kAccepting) != 0; }
  bool Ends(uint32_t state) const { return live_[state] == 0; }  // no byte may follow
  // So many bytes may follow that a mask is worth keeping.
  bool Wide(uint32_t state) const { return live_[state] >= kWideBytes; }
  // What a step does to the count of characters.
  bool BeginsCharacter(uint32_t from, uint32_t to) const {
    return (flags_[from] & kBoundary) != 0 && (flags_[to] & kTerminator) == 0;
  }
  bool BeginsEnd(uint32_t from, uint32_t to) const {
    return (flags_[from] & kBoundary) != 0 && (flags_[to] & kTerminator) != 0;
  }

  uint8_t Flags(uint32_t state) const { return flags_[state]; }
  uint32_t state_count() const { return static_cast<uint32_t>(flags_.size()); }
  bool Matches(std::string_view text) const;  // the whole of it
  size_t MemoryBytes() const { return next_.size() * sizeof(uint32_t) + sizeof(*this); }

 private:
  friend class DfaBuilder;
  static constexpr uint16_t kWideBytes = 24;
  Dfa() = default;

  uint8_t class_of_[256] = {};
  uint32_t class_count_ = 0;
  std::vector<uint32_t> next_;  // [state][class]
  std::vector<uint8_t> flags_;
  std::vector<uint16_t> live_;  // bytes that may follow
};

// Collects states and edges. The first state is the start.
class DfaBuilder {
 public:
  uint32_t AddState(uint8_t flags = 0);
  // Later edges replace earlier ones.
  void SetBytes(uint32_t from, uint8_t low, uint8_t high, uint32_t to);
  uint32_t state_count() const { return static_cast<uint32_t>(flags_.size()); }
  void SetFlags(uint32_t state, uint8_t flags) { flags_[state] = flags; }

  // Without the states that lead nowhere. nullopt: no text is accepted at all.
  std::optional<Dfa> Finish() &&;

 private:
  std::vector<uint32_t> next_;  // [state][256]
  std::vector<uint8_t> flags_;
};

// Exactly `text`, which may be empty.
Dfa LiteralDfa(std::string_view text);

// What both accept; characters are counted as `a` counts them. nullopt: nothing.
// ResourceExhausted: over Dfa::kStatesMax states.
absl::StatusOr<std::optional<Dfa>> Intersect(const Dfa& a, const Dfa& b);

}  // namespace hearth::grammar
