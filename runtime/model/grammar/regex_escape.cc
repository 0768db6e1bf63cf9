// Reading of the escapes and classes of patterns.
#include "runtime/model/grammar/regex_escape.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth::grammar {
namespace {

constexpr uint32_t kNumberMax = 1'000'000'000;

std::vector<CodePointRange> Digits() { return {{'0', '9'}}; }

std::vector<CodePointRange> WordCharacters() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}

std::vector<CodePointRange> Spaces() {  // ECMAScript's WhiteSpace and LineTerminator
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

std::optional<std::vector<CodePointRange>> ClassEscape(char32_t c) {
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Complement(Digits());
    case 'w':
      return WordCharacters();
    case 'W':
      return Complement(WordCharacters());
    case 's':
      return Spaces();
    case 'S':
      return Complement(Spaces());
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> NamedCharacter(char32_t c) {
  constexpr std::u32string_view kNames = U"ntrfv";
  constexpr std::u32string_view kCharacters = U"\n\t\r\f\v";
  const size_t at = kNames.find(c);
  if (at == std::u32string_view::npos) return std::nullopt;
  return kCharacters[at];
}

bool IsAlphanumeric(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

absl::StatusOr<uint32_t> ParseUnicodeEscape(PatternCursor& cursor) {
  if (cursor.Take('{')) {
    uint32_t value = 0;
    bool any = false;
    while (const std::optional<uint32_t> digit = cursor.TakeHex(1)) {
      value = value * 16 + *digit;
      any = true;
      if (value > 0x10FFFF) return cursor.Wrong("a character beyond U+10FFFF");
    }
    if (!any || !cursor.Take('}')) return cursor.Wrong("a broken \\u{...}");
    return value;
  }
  const std::optional<uint32_t> value = cursor.TakeHex(4);
  if (!value.has_value()) return cursor.Wrong("\\u without four hexadecimal digits");
  if (*value < 0xD800 || *value > 0xDFFF) return *value;
  // The two halves of one character.
  if (*value < 0xDC00 && cursor.Take('\\') && cursor.Take('u')) {
    const std::optional<uint32_t> low = cursor.TakeHex(4);
    if (low.has_value() && *low >= 0xDC00 && *low <= 0xDFFF) {
      return 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    }
  }
  return cursor.Wrong("half of a surrogate pair");
}

}  // namespace

absl::StatusOr<std::u32string> CodePointsOf(std::string_view text) {
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("broken UTF-8");
  std::u32string code_points;
  while (!text.empty()) {
    code_points.push_back(CodePointAt(text));
    text.remove_prefix(NextUtf8(text).length_bytes);
  }
  return code_points;
}

bool PatternCursor::Take(char32_t c) {
  if (AtEnd() || text[at] != c) return false;
  ++at;
  return true;
}

std::optional<uint32_t> PatternCursor::TakeNumber() {
  uint64_t value = 0;
  const size_t begin = at;
  while (!AtEnd() && Peek() >= '0' && Peek() <= '9') {
    value = value * 10 + (Next() - U'0');
    if (value > kNumberMax) value = kNumberMax;
  }
  if (at == begin) return std::nullopt;
  return static_cast<uint32_t>(value);
}

std::optional<uint32_t> PatternCursor::TakeHex(size_t digits) {
  uint32_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (at + i >= text.size()) return std::nullopt;
    const char32_t c = text[at + i];
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - U'0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      value = value * 16 + ((c | 0x20) - U'a') + 10;
    } else {
      return std::nullopt;
    }
  }
  at += digits;
  return value;
}

std::optional<std::pair<uint32_t, uint32_t>> PatternCursor::TakeCounts() {
  const size_t begin = at;
  if (!Take('{')) return std::nullopt;
  const std::optional<uint32_t> least = TakeNumber();
  if (least.has_value()) {
    if (Take('}')) return std::pair(*least, *least);
    if (Take(',')) {
      if (Take('}')) return std::pair(*least, UINT32_MAX);
      const std::optional<uint32_t> most = TakeNumber();
      if (most.has_value() && Take('}')) return std::pair(*least, *most);
    }
  }
  at = begin;
  return std::nullopt;
}

absl::Status PatternCursor::Wrong(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), " at character ", at));
}

absl::Status PatternCursor::Refused(std::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(what), " (at character ", at, ") cannot be followed by an automaton"));
}

absl::StatusOr<std::vector<CodePointRange>> ParseEscape(PatternCursor& cursor, bool in_class) {
  if (cursor.AtEnd()) return cursor.Wrong("a backslash with nothing behind it");
  const char32_t c = cursor.Next();
  const auto one = [](uint32_t value) { return std::vector<CodePointRange>{{value, value}}; };
  if (auto ranges = ClassEscape(c)) return *std::move(ranges);
  if (const auto value = NamedCharacter(c)) return one(*value);
  switch (c) {
    case 'b':
      if (in_class) return one('\b');
      return cursor.Refused("a word boundary");
    case 'B':
      return cursor.Refused("a word boundary");
    case 'p':
    case 'P':
      return cursor.Refused("a class by Unicode property");
    case 'k':
      return cursor.Refused("a back reference");
    case '0':
      return one(0);
    case 'x': {
      const std::optional<uint32_t> value = cursor.TakeHex(2);
      if (!value.has_value()) return cursor.Wrong("\\x without two hexadecimal digits");
      return one(*value);
    }
    case 'u': {
      HEARTH_ASSIGN_OR_RETURN(const uint32_t value, ParseUnicodeEscape(cursor));
      return one(value);
    }
    case 'c': {
      if (cursor.AtEnd()) return cursor.Wrong("\\c without a letter");
      return one(cursor.Next() & 31);
    }
    default:
      if (c >= '1' && c <= '9') return cursor.Refused("a back reference");
      if (IsAlphanumeric(c)) return cursor.Wrong("an unknown escape");
      return one(c);
  }
}

absl::StatusOr<std::vector<CodePointRange>> ParseClass(PatternCursor& cursor) {
  const bool negated = cursor.Take('^');
  std::vector<CodePointRange> ranges;
  const auto atom = [&]() -> absl::StatusOr<std::vector<CodePointRange>> {
    const char32_t c = cursor.Next();
    if (c == '\\') return ParseEscape(cursor, /*in_class=*/true);
    return std::vector<CodePointRange>{{c, c}};
  };
  while (!cursor.AtEnd() && cursor.Peek() != ']') {
    HEARTH_ASSIGN_OR_RETURN(std::vector<CodePointRange> low, atom());
    const bool range = cursor.at + 1 < cursor.text.size() && cursor.Peek() == '-' &&
                       cursor.text[cursor.at + 1] != ']';
    if (!range) {
      ranges.insert(ranges.end(), low.begin(), low.end());
      continue;
    }
    cursor.Next();
    HEARTH_ASSIGN_OR_RETURN(const std::vector<CodePointRange> high, atom());
    const bool single = low.size() == 1 && low[0].first == low[0].last && high.size() == 1 &&
                        high[0].first == high[0].last;
    if (!single) return cursor.Wrong("a range that ends in a class");
    if (high[0].first < low[0].first) return cursor.Wrong("a range that ends before it begins");
    ranges.push_back({low[0].first, high[0].first});
  }
  if (!cursor.Take(']')) return cursor.Wrong("a '[' without its ']'");
  ranges = Normalized(std::move(ranges));
  return negated ? Complement(ranges) : ranges;
}

}  // namespace hearth::grammar
