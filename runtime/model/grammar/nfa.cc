// Characters as bytes (the split of code point ranges into UTF-8 ranges), and subset construction.
#include "runtime/model/grammar/nfa.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hearth::grammar {
namespace {

constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};
// Of subset construction: states of sets, all together.
constexpr uint64_t kSubsetWorkMax = 20'000'000;

struct Utf8 {
  std::array<uint8_t, 4> bytes;
  size_t count;
};

Utf8 Encode(uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<uint8_t>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xC0 | (c >> 6)), tail(0)}, 2};
  if (c < 0x10000) return {{static_cast<uint8_t>(0xE0 | (c >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)}, 4};
}

absl::Status TooLarge() {
  return absl::ResourceExhaustedError(
      absl::StrCat("the pattern needs over ", Dfa::kStatesMax,
                   " states; use shorter repetitions or fewer alternatives"));
}

bool All(std::span<const uint8_t> bytes, uint8_t value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return b == value; });
}

}  // namespace

std::vector<CodePointRange> Normalized(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& range : ranges) {
    const uint32_t last = std::min(range.last, kLastCodePoint);
    if (range.first > last) continue;
    if (range.first < kSurrogates.first) {
      parts.push_back({range.first, std::min(last, kSurrogates.first - 1)});
    }
    if (last > kSurrogates.last) {
      parts.push_back({std::max(range.first, kSurrogates.last + 1), last});
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> merged;
  for (const CodePointRange& part : parts) {
    if (!merged.empty() && part.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, part.last);
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

std::vector<CodePointRange> Complement(std::span<const CodePointRange> normalized) {
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const CodePointRange& range : normalized) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return Normalized(std::move(rest));
}

Nfa::State Nfa::AddState() {
  if (states_.size() >= kStatesMax) {
    too_large_ = true;
    return 0;
  }
  states_.emplace_back();
  return static_cast<State>(states_.size() - 1);
}

void Nfa::AddEpsilon(State from, State to) { states_[from].epsilons.push_back(to); }

void Nfa::AddBytes(State from, uint8_t low, uint8_t high, State to) {
  states_[from].edges.push_back({low, high, to});
}

void Nfa::AddText(State from, std::string_view bytes, State to) {
  if (bytes.empty()) return AddEpsilon(from, to);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const State next = i + 1 == bytes.size() ? to : AddState();
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    AddBytes(from, byte, byte, next);
    from = next;
  }
}

// Encodings of one length, from `low` to `high`.
void Nfa::AddUtf8(State from, std::span<const uint8_t> low, std::span<const uint8_t> high,
                  State to) {
  if (low.size() == 1) return AddBytes(from, low[0], high[0], to);
  const auto rest_low = low.subspan(1);
  const auto rest_high = high.subspan(1);
  const auto through = [&](uint8_t first, uint8_t last, std::span<const uint8_t> rest_first,
                           std::span<const uint8_t> rest_last) {
    const State middle = AddState();
    AddBytes(from, first, last, middle);
    AddUtf8(middle, rest_first, rest_last, to);
  };
  if (low[0] == high[0]) return through(low[0], low[0], rest_low, rest_high);
  constexpr std::array<uint8_t, 3> kLeast = {0x80, 0x80, 0x80};
  constexpr std::array<uint8_t, 3> kMost = {0xBF, 0xBF, 0xBF};
  const auto least = std::span<const uint8_t>(kLeast).first(rest_low.size());
  const auto most = std::span<const uint8_t>(kMost).first(rest_low.size());
  uint32_t first = low[0];
  uint32_t last = high[0];
  if (!All(rest_low, 0x80)) {
    through(low[0], low[0], rest_low, most);
    ++first;
  }
  if (!All(rest_high, 0xBF)) {
    through(high[0], high[0], least, rest_high);
    --last;
  }
  if (first <= last) {
    through(static_cast<uint8_t>(first), static_cast<uint8_t>(last), least, most);
  }
}

void Nfa::AddUtf8Range(State from, CodePointRange range, State to) {
  constexpr std::array<uint32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, kLastCodePoint};
  uint32_t first = range.first;
  for (const uint32_t last_of_length : kLastOfLength) {
    if (first > range.last) return;
    if (first > last_of_length) continue;
    const uint32_t last = std::min(range.last, last_of_length);
    const Utf8 low = Encode(first);
    const Utf8 high = Encode(last);
    AddUtf8(from, std::span(low.bytes).first(low.count), std::span(high.bytes).first(high.count),
            to);
    first = last + 1;
  }
}

void Nfa::AddJsonEscape(State from, uint32_t code_point, State to) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  const size_t at = kNamed.find(static_cast<char>(code_point));
  if (at != std::string_view::npos) {
    const char escape[2] = {'\\', kNames[at]};
    return AddText(from, {escape, 2}, to);
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  const char escape[6] = {'\\', 'u', '0', '0', kHex[code_point >> 4], kHex[code_point & 15]};
  AddText(from, {escape, 6}, to);
}

void Nfa::AddCodePoints(State from, std::span<const CodePointRange> ranges, TextEncoding encoding,
                        State to) {
  for (const CodePointRange& range : ranges) {
    if (encoding == TextEncoding::kRaw) {
      AddUtf8Range(from, range, to);
      continue;
    }
    uint32_t first = range.first;
    for (const uint32_t c : {uint32_t{0x1F}, uint32_t{'"'}, uint32_t{'\\'}}) {
      // What is escaped: all up to 0x1F, then single ones.
      if (first > range.last || first > c) continue;
      const uint32_t escaped_first = c == 0x1F ? first : c;
      if (escaped_first > first && escaped_first > range.last) continue;
      if (escaped_first > first) AddUtf8Range(from, {first, escaped_first - 1}, to);
      for (uint32_t e = escaped_first; e <= std::min(c, range.last); ++e) {
        AddJsonEscape(from, e, to);
      }
      first = c + 1;
    }
    if (first <= range.last) AddUtf8Range(from, {first, range.last}, to);
  }
}

void Nfa::Close(std::vector<State>& states, std::vector<uint32_t>& mark, uint32_t stamp) const {
  size_t kept = 0;
  for (const State state : states) {
    if (mark[state] == stamp) continue;
    mark[state] = stamp;
    states[kept++] = state;
  }
  states.resize(kept);
  for (size_t i = 0; i < states.size(); ++i) {
    for (const State to : states_[states[i]].epsilons) {
      if (mark[to] == stamp) continue;
      mark[to] = stamp;
      states.push_back(to);
    }
  }
  std::sort(states.begin(), states.end());
}

absl::StatusOr<std::optional<Dfa>> Nfa::ToDfa(State start, State accept) const {
  if (too_large_) return TooLarge();
  std::bitset<257> begins;  // of classes: bytes that no edge tells apart
  begins[0] = true;
  for (const Links& links : states_) {
    for (const Edge& edge : links.edges) {
      begins[edge.low] = true;
      begins[size_t{edge.high} + 1] = true;
    }
  }
  std::vector<uint8_t> class_begin;
  std::array<uint16_t, 257> class_of = {};
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) class_begin.push_back(static_cast<uint8_t>(byte));
    class_of[byte] = static_cast<uint16_t>(class_begin.size() - 1);
  }
  DfaBuilder builder;
  absl::flat_hash_map<std::vector<State>, uint32_t> numbers;
  std::vector<std::vector<State>> sets;
  std::vector<uint32_t> mark(states_.size());
  uint32_t stamp = 0;
  uint64_t work = 0;
  const auto number = [&](std::vector<State> set) {
    Close(set, mark, ++stamp);
    work += set.size() + 1;
    const auto [it, is_new] = numbers.try_emplace(set, builder.state_count());
    if (is_new) {
      const bool accepts = std::binary_search(set.begin(), set.end(), accept);
      builder.AddState(accepts ? Dfa::kAccepting : 0);
      sets.push_back(std::move(set));
    }
    return it->second;
  };
  number({start});
  for (uint32_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > Dfa::kStatesMax || work > kSubsetWorkMax) return TooLarge();
    std::vector<std::vector<State>> targets(class_begin.size());
    for (const State state : sets[i]) {
      for (const Edge& edge : states_[state].edges) {
        for (size_t c = class_of[edge.low]; c <= class_of[edge.high]; ++c) {
          targets[c].push_back(edge.to);
        }
      }
    }
    for (size_t c = 0; c < targets.size(); ++c) {
      if (targets[c].empty()) continue;
      const uint8_t last =
          c + 1 == class_begin.size() ? 255 : static_cast<uint8_t>(class_begin[c + 1] - 1);
      builder.SetBytes(i, class_begin[c], last, number(std::move(targets[c])));
    }
  }
  return std::move(builder).Finish();
}

}  // namespace hearth::grammar
