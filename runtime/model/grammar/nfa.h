// A non-deterministic automaton over bytes, on the way from a pattern to a Dfa.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/grammar/dfa.h"

namespace hearth::grammar {

struct CodePointRange {  // both inclusive
  uint32_t first;
  uint32_t last;
};

// How a character is written.
enum class TextEncoding : uint8_t {
  kJson,  // inside the quotes of a JSON string, with the shortest escapes
  kRaw,   // as it is, in UTF-8
};

// Sorted, disjoint, without surrogates and without what is beyond Unicode.
std::vector<CodePointRange> Normalized(std::vector<CodePointRange> ranges);
std::vector<CodePointRange> Complement(std::span<const CodePointRange> normalized);

class Nfa {
 public:
  using State = uint32_t;
  static constexpr uint32_t kStatesMax = 100'000;

  State AddState();
  void AddEpsilon(State from, State to);
  void AddBytes(State from, uint8_t low, uint8_t high, State to);
  void AddText(State from, std::string_view bytes, State to);
  // One character of normalised ranges.
  void AddCodePoints(State from, std::span<const CodePointRange> ranges, TextEncoding encoding,
                     State to);

  // Over kStatesMax states were added: nothing more is, and ToDfa fails.
  bool too_large() const { return too_large_; }

  // nullopt: accepts nothing. ResourceExhausted: over kStatesMax or Dfa::kStatesMax states.
  absl::StatusOr<std::optional<Dfa>> ToDfa(State start, State accept) const;

 private:
  struct Edge {
    uint8_t low;
    uint8_t high;
    State to;
  };
  struct Links {
    std::vector<Edge> edges;
    std::vector<State> epsilons;
  };
  void AddUtf8(State from, std::span<const uint8_t> low, std::span<const uint8_t> high, State to);
  void AddUtf8Range(State from, CodePointRange range, State to);
  void AddJsonEscape(State from, uint32_t code_point, State to);
  void Close(std::vector<State>& states, std::vector<uint32_t>& mark, uint32_t stamp) const;

  std::vector<Links> states_;
  bool too_large_ = false;
};

}  // namespace hearth::grammar
