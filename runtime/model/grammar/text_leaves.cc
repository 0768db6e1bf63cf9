// Building of the automata of text.
#include "runtime/model/grammar/text_leaves.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/grammar/number_leaves.h"
#include "runtime/model/grammar/regex.h"

namespace hearth::grammar {
namespace {

constexpr uint8_t kHexRanges[][2] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};

void SetHex(DfaBuilder& builder, uint32_t from, uint32_t to) {
  for (const auto& [low, high] : kHexRanges) builder.SetBytes(from, low, high, to);
}

// The bytes of characters beyond ASCII, from `boundary` back to it (Unicode 15.0, table 3-7).
void AddMultibyte(DfaBuilder& builder, uint32_t boundary) {
  const uint32_t one_left = builder.AddState();
  const uint32_t two_left = builder.AddState();
  const uint32_t three_left = builder.AddState();
  builder.SetBytes(one_left, 0x80, 0xBF, boundary);
  builder.SetBytes(two_left, 0x80, 0xBF, one_left);
  builder.SetBytes(three_left, 0x80, 0xBF, two_left);
  builder.SetBytes(boundary, 0xC2, 0xDF, one_left);
  builder.SetBytes(boundary, 0xE1, 0xEF, two_left);
  builder.SetBytes(boundary, 0xF1, 0xF3, three_left);
  struct Narrow {
    uint8_t lead, low, high;
    uint32_t then;
  };
  for (const Narrow& narrow :
       {Narrow{0xE0, 0xA0, 0xBF, one_left}, Narrow{0xED, 0x80, 0x9F, one_left},
        Narrow{0xF0, 0x90, 0xBF, two_left}, Narrow{0xF4, 0x80, 0x8F, two_left}}) {
    const uint32_t state = builder.AddState();
    builder.SetBytes(boundary, narrow.lead, narrow.lead, state);
    builder.SetBytes(state, narrow.low, narrow.high, narrow.then);
  }
}

// From behind a backslash back to `boundary`. Halves of surrogate pairs come in pairs.
void AddEscapes(DfaBuilder& builder, uint32_t escape, uint32_t boundary) {
  for (const char c : std::string_view("\"\\/bfnrt")) {
    builder.SetBytes(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), boundary);
  }
  std::array<uint32_t, 4> left;  // [n]: n hexadecimal digits to come, nothing special about them
  left[0] = boundary;
  for (size_t n = 1; n < left.size(); ++n) {
    left[n] = builder.AddState();
    SetHex(builder, left[n], left[n - 1]);
  }
  const uint32_t first_digit = builder.AddState();
  builder.SetBytes(escape, 'u', 'u', first_digit);
  SetHex(builder, first_digit, left[3]);
  const uint32_t after_d = builder.AddState();  // \uD
  builder.SetBytes(first_digit, 'd', 'd', after_d);
  builder.SetBytes(first_digit, 'D', 'D', after_d);
  builder.SetBytes(after_d, '0', '7', left[2]);
  std::array<uint32_t, 6> high;  // \uD8 to \uDB, then: hex, hex, \, u, D, then C to F
  for (uint32_t& state : high) state = builder.AddState();
  builder.SetBytes(after_d, '8', '9', high[0]);
  builder.SetBytes(after_d, 'A', 'B', high[0]);
  builder.SetBytes(after_d, 'a', 'b', high[0]);
  SetHex(builder, high[0], high[1]);
  SetHex(builder, high[1], high[2]);
  builder.SetBytes(high[2], '\\', '\\', high[3]);
  builder.SetBytes(high[3], 'u', 'u', high[4]);
  builder.SetBytes(high[4], 'd', 'd', high[5]);
  builder.SetBytes(high[4], 'D', 'D', high[5]);
  builder.SetBytes(high[5], 'c', 'f', left[2]);
  builder.SetBytes(high[5], 'C', 'F', left[2]);
}

Dfa Finished(DfaBuilder builder) {
  std::optional<Dfa> dfa = std::move(builder).Finish();
  HEARTH_CHECK(dfa.has_value());
  return *std::move(dfa);
}

Dfa MakeJsonString(bool escapes) {
  DfaBuilder builder;
  const uint32_t start = builder.AddState();
  const uint32_t boundary = builder.AddState(Dfa::kBoundary);
  const uint32_t end = builder.AddState(Dfa::kAccepting | Dfa::kTerminator);
  builder.SetBytes(start, '"', '"', boundary);
  builder.SetBytes(boundary, 0x20, 0x7F, boundary);
  builder.SetBytes(boundary, '"', '"', end);
  builder.SetBytes(boundary, '\\', '\\', Dfa::kDead);
  AddMultibyte(builder, boundary);
  if (escapes) {
    const uint32_t escape = builder.AddState();
    builder.SetBytes(boundary, '\\', '\\', escape);
    AddEscapes(builder, escape, boundary);
  }
  return Finished(std::move(builder));
}

// Text up to the first kRawEnd, in which nothing of kRawForbidden comes: bytes only.
Dfa MakeRawUntilEnd() {
  struct Prefix {
    std::string text;
    bool forbidden = false;
    bool end = false;
  };
  std::vector<std::string> words(std::begin(kRawForbidden), std::end(kRawForbidden));
  words.emplace_back(kRawEnd);
  std::map<std::string, uint32_t> numbers;
  std::vector<Prefix> prefixes;
  for (const std::string& word : words) {
    for (size_t length = 0; length <= word.size(); ++length) {
      const std::string text = word.substr(0, length);
      if (numbers.emplace(text, prefixes.size()).second) prefixes.push_back({.text = text});
    }
  }
  for (Prefix& prefix : prefixes) {
    prefix.end = prefix.text == kRawEnd;
    prefix.forbidden =
        !prefix.end && std::any_of(words.begin(), words.end() - 1, [&](const std::string& word) {
          return prefix.text.ends_with(word);
        });
  }
  DfaBuilder builder;
  for (const Prefix& prefix : prefixes) builder.AddState(prefix.end ? Dfa::kAccepting : 0);
  for (uint32_t state = 0; state < prefixes.size(); ++state) {
    if (prefixes[state].end || prefixes[state].forbidden) continue;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string text = prefixes[state].text + static_cast<char>(byte);
      while (!numbers.contains(text)) text.erase(0, 1);  // the longest end that begins a word
      const uint32_t to = numbers.at(text);
      const uint8_t value = static_cast<uint8_t>(byte);
      builder.SetBytes(state, value, value, prefixes[to].forbidden ? Dfa::kDead : to);
    }
  }
  return Finished(std::move(builder));
}

DfaBuilder Utf8Text(uint32_t& boundary) {
  DfaBuilder builder;
  boundary = builder.AddState(Dfa::kBoundary | Dfa::kAccepting);
  builder.SetBytes(boundary, 0x20, 0x7F, boundary);
  builder.SetBytes(boundary, '\t', '\t', boundary);
  AddMultibyte(builder, boundary);
  return builder;
}

Dfa MakeRawText() {
  uint32_t boundary = 0;
  DfaBuilder builder = Utf8Text(boundary);
  builder.SetBytes(boundary, '\n', '\n', boundary);
  const auto both = Intersect(Finished(std::move(builder)), MakeRawUntilEnd());
  HEARTH_CHECK(both.ok() && both->has_value());
  return **both;
}

Dfa MakeRawLine() {
  uint32_t boundary = 0;
  DfaBuilder builder = Utf8Text(boundary);
  builder.SetFlags(boundary, Dfa::kBoundary);
  uint32_t from = boundary;
  for (size_t i = 0; i < kRawEnd.size(); ++i) {
    const uint32_t to = builder.AddState(Dfa::kTerminator);
    const uint8_t byte = static_cast<uint8_t>(kRawEnd[i]);
    builder.SetBytes(from, byte, byte, to);
    from = to;
  }
  builder.SetFlags(from, Dfa::kTerminator | Dfa::kAccepting);
  const auto both = Intersect(Finished(std::move(builder)), MakeRawUntilEnd());
  HEARTH_CHECK(both.ok() && both->has_value());
  return **both;
}

}  // namespace

std::shared_ptr<const CommonLeaves> CommonLeaves::Make() {
  auto leaves = std::make_shared<CommonLeaves>();
  leaves->json_string = std::make_shared<const Dfa>(MakeJsonString(/*escapes=*/true));
  leaves->raw_text = std::make_shared<const Dfa>(MakeRawText());
  leaves->raw_line = std::make_shared<const Dfa>(MakeRawLine());
  leaves->integer = std::make_shared<const Dfa>(AnyIntegerDfa());
  leaves->number = std::make_shared<const Dfa>(AnyNumberDfa());
  return leaves;
}

std::vector<const Dfa*> CommonLeaves::Sorted() const {
  std::vector<const Dfa*> all = {json_string.get(), raw_text.get(), raw_line.get(), integer.get(),
                                 number.get()};
  std::sort(all.begin(), all.end());
  return all;
}

std::string JsonQuoted(std::string_view text) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const size_t at = kNamed.find(c);
    if (at != std::string_view::npos) {
      quoted.append({'\\', kNames[at]});
    } else if (static_cast<uint8_t>(c) < 0x20) {
      quoted.append("\\u00");
      quoted.append({kHex[static_cast<uint8_t>(c) >> 4], kHex[static_cast<uint8_t>(c) & 15]});
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

absl::StatusOr<Dfa> OtherNameDfa(std::span<const std::string> names) {
  DfaBuilder builder;
  const uint32_t start = builder.AddState();
  const uint32_t root = builder.AddState();
  const uint32_t other = builder.AddState();
  const uint32_t end = builder.AddState(Dfa::kAccepting);
  builder.SetBytes(start, '"', '"', root);
  std::map<std::pair<uint32_t, uint8_t>, uint32_t> children;
  const auto add = [&] {
    const uint32_t state = builder.AddState();
    builder.SetBytes(state, 0, 255, other);
    builder.SetBytes(state, '"', '"', end);
    return state;
  };
  builder.SetBytes(root, 0, 255, other);
  builder.SetBytes(root, '"', '"', end);
  builder.SetBytes(other, 0, 255, other);
  builder.SetBytes(other, '"', '"', end);
  for (const std::string& name : names) {
    if (JsonQuoted(name).size() != name.size() + 2) continue;  // needs escapes: cannot come here
    uint32_t state = root;
    for (const char c : name) {
      const uint8_t byte = static_cast<uint8_t>(c);
      const auto [it, is_new] = children.try_emplace({state, byte}, 0);
      if (is_new) {
        it->second = add();
        builder.SetBytes(state, byte, byte, it->second);
      }
      state = it->second;
      if (builder.state_count() > Dfa::kStatesMax) {
        return absl::ResourceExhaustedError("the names of the properties are too long together");
      }
    }
    builder.SetBytes(state, '"', '"', Dfa::kDead);
  }
  HEARTH_ASSIGN_OR_RETURN(std::optional<Dfa> both, Intersect(MakeJsonString(/*escapes=*/false),
                                                             Finished(std::move(builder))));
  HEARTH_CHECK(both.has_value());
  return *std::move(both);
}

absl::StatusOr<std::optional<Dfa>> OneOfDfa(std::span<const std::string> texts,
                                            std::string_view end) {
  Nfa nfa;
  const Nfa::State start = nfa.AddState();
  const Nfa::State before_end = nfa.AddState();
  const Nfa::State accept = nfa.AddState();
  for (const std::string& text : texts) nfa.AddText(start, text, before_end);
  nfa.AddText(before_end, end, accept);
  return nfa.ToDfa(start, accept);
}

absl::StatusOr<std::optional<Dfa>> PatternDfa(const StringRules& rules, TextEncoding encoding) {
  if (rules.length_min > rules.length_max) return std::nullopt;
  std::vector<std::string> patterns = rules.patterns;
  if (rules.length_min > 0 || rules.length_max != UINT32_MAX) {
    const std::string most = rules.length_max == UINT32_MAX ? "" : std::to_string(rules.length_max);
    patterns.push_back(absl::StrCat("^[\\s\\S]{", rules.length_min, ",", most, "}$"));
  }
  std::optional<Dfa> all;
  for (const std::string& pattern : patterns) {
    HEARTH_ASSIGN_OR_RETURN(const Regex regex, Regex::Parse(pattern));
    Nfa nfa;
    const Nfa::State start = nfa.AddState();
    Nfa::State at = start;
    if (encoding == TextEncoding::kJson) {
      at = nfa.AddState();
      nfa.AddText(start, "\"", at);
    }
    at = regex.AddTo(nfa, at, encoding);
    const Nfa::State accept = nfa.AddState();
    nfa.AddText(at, encoding == TextEncoding::kJson ? "\"" : kRawEnd, accept);
    HEARTH_ASSIGN_OR_RETURN(std::optional<Dfa> one, nfa.ToDfa(start, accept));
    if (!one.has_value()) return std::nullopt;
    if (!all.has_value()) {
      // The end of a parameter must be the first there is.
      if (encoding == TextEncoding::kJson) {
        all = std::move(one);
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(all, Intersect(*one, MakeRawText()));
    } else {
      HEARTH_ASSIGN_OR_RETURN(all, Intersect(*all, *one));
    }
    if (!all.has_value()) return std::nullopt;
  }
  return all;
}

}  // namespace hearth::grammar
