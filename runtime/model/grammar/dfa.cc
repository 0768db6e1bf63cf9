// Building of automata: useless states are dropped, bytes that no state tells apart share a column.
#include "runtime/model/grammar/dfa.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth::grammar {
namespace {

// Which states have a way to an accepting one, and which are reached from the start.
std::vector<bool> UsefulStates(const std::vector<uint32_t>& next,
                               const std::vector<uint8_t>& flags) {
  const size_t count = flags.size();
  std::vector<std::vector<uint32_t>> before(count);
  for (size_t state = 0; state < count; ++state) {
    uint32_t last = Dfa::kDead;
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t to = next[state * 256 + byte];
      if (to != Dfa::kDead && to != last) before[to].push_back(static_cast<uint32_t>(state));
      last = to;
    }
  }
  std::vector<bool> leads(count), reached(count);
  std::vector<uint32_t> open;
  for (uint32_t state = 0; state < count; ++state) {
    if ((flags[state] & Dfa::kAccepting) != 0) {
      leads[state] = true;
      open.push_back(state);
    }
  }
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (const uint32_t from : before[state]) {
      if (leads[from]) continue;
      leads[from] = true;
      open.push_back(from);
    }
  }
  if (count == 0 || !leads[0]) return std::vector<bool>(count);
  reached[0] = true;
  open.push_back(0);
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t to = next[size_t{state} * 256 + byte];
      if (to == Dfa::kDead || reached[to] || !leads[to]) continue;
      reached[to] = true;
      open.push_back(to);
    }
  }
  return reached;
}

}  // namespace

bool Dfa::Matches(std::string_view text) const {
  uint32_t state = kStart;
  for (const char c : text) {
    state = Next(state, static_cast<uint8_t>(c));
    if (state == kDead) return false;
  }
  return Accepts(state);
}

uint32_t DfaBuilder::AddState(uint8_t flags) {
  flags_.push_back(flags);
  next_.resize(next_.size() + 256, Dfa::kDead);
  return static_cast<uint32_t>(flags_.size() - 1);
}

void DfaBuilder::SetBytes(uint32_t from, uint8_t low, uint8_t high, uint32_t to) {
  for (uint32_t byte = low; byte <= high; ++byte) next_[size_t{from} * 256 + byte] = to;
}

std::optional<Dfa> DfaBuilder::Finish() && {
  const std::vector<bool> useful = UsefulStates(next_, flags_);
  if (useful.empty() || !useful[0]) return std::nullopt;
  std::vector<uint32_t> number(flags_.size(), Dfa::kDead);
  Dfa dfa;
  for (size_t state = 0; state < flags_.size(); ++state) {
    if (!useful[state]) continue;
    number[state] = static_cast<uint32_t>(dfa.flags_.size());
    dfa.flags_.push_back(flags_[state]);
  }
  const auto target = [&](size_t state, size_t byte) {
    const uint32_t to = next_[state * 256 + byte];
    return to == Dfa::kDead ? Dfa::kDead : number[to];
  };
  // Bytes that no state tells apart are one class.
  std::map<std::vector<uint32_t>, uint8_t> classes;
  std::vector<const std::vector<uint32_t>*> columns;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<uint32_t> column;
    for (size_t state = 0; state < flags_.size(); ++state) {
      if (useful[state]) column.push_back(target(state, byte));
    }
    const auto [it, is_new] =
        classes.emplace(std::move(column), static_cast<uint8_t>(classes.size()));
    if (is_new) columns.push_back(&it->first);
    dfa.class_of_[byte] = it->second;
  }
  dfa.class_count_ = static_cast<uint32_t>(columns.size());
  for (size_t state = 0; state < dfa.flags_.size(); ++state) {
    for (const std::vector<uint32_t>* column : columns) dfa.next_.push_back((*column)[state]);
    uint16_t live = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if ((*columns[dfa.class_of_[byte]])[state] != Dfa::kDead) ++live;
    }
    dfa.live_.push_back(live);
  }
  return dfa;
}

Dfa LiteralDfa(std::string_view text) {
  DfaBuilder builder;
  uint32_t state = builder.AddState();
  for (const char c : text) {
    const uint32_t to = builder.AddState();
    builder.SetBytes(state, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    state = to;
  }
  builder.SetFlags(state, Dfa::kAccepting);
  std::optional<Dfa> dfa = std::move(builder).Finish();
  HEARTH_CHECK(dfa.has_value());
  return *std::move(dfa);
}

absl::StatusOr<std::optional<Dfa>> Intersect(const Dfa& a, const Dfa& b) {
  DfaBuilder builder;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
  std::vector<std::pair<uint32_t, uint32_t>> states;
  const auto number = [&](uint32_t left, uint32_t right) {
    const auto [it, is_new] = numbers.try_emplace({left, right}, builder.state_count());
    if (is_new) {
      uint8_t flags = static_cast<uint8_t>(a.Flags(left) & ~Dfa::kAccepting);
      if (a.Accepts(left) && b.Accepts(right)) flags |= Dfa::kAccepting;
      builder.AddState(flags);
      states.push_back({left, right});
    }
    return it->second;
  };
  number(Dfa::kStart, Dfa::kStart);
  for (uint32_t i = 0; i < states.size(); ++i) {
    if (states.size() > Dfa::kStatesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("what is asked of a text needs over ", Dfa::kStatesMax,
                       " states together; ask for less of it, such as shorter repetitions"));
    }
    const auto [left, right] = states[i];
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t to_left = a.Next(left, static_cast<uint8_t>(byte));
      const uint32_t to_right = b.Next(right, static_cast<uint8_t>(byte));
      if (to_left == Dfa::kDead || to_right == Dfa::kDead) continue;
      const uint8_t value = static_cast<uint8_t>(byte);
      builder.SetBytes(i, value, value, number(to_left, to_right));
    }
  }
  return std::move(builder).Finish();
}

}  // namespace hearth::grammar
