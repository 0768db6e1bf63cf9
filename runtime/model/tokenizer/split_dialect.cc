// A recursive-descent reader over the split pattern that writes PCRE2 as it goes. PCRE2 never sees
// the file's own syntax: literals leave as \x{...}, sets as ranges.
#include "runtime/model/tokenizer/split_dialect.h"

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/code_point_ranges.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

constexpr uint32_t kPatternBytesMax = 4096;
constexpr uint32_t kNestingMax = 32;
constexpr uint32_t kRepeatMax = 1000;

// Unicode 16.0, White_Space.
constexpr CodePointRange kWhiteSpace[] = {
    {0x0009, 0x000D}, {0x0020, 0x0020}, {0x0085, 0x0085}, {0x00A0, 0x00A0}, {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

// General categories L, M and N: what Unicode 15.0 to 16.0 added to 14.0.
constexpr CodePointRange kLaterLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240},
    {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5},
    {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
    {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F},
    {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C},
    {0x18CFF, 0x18CFF}, {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1DF25, 0x1DF2A},
    {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0},
    {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF},
};
constexpr CodePointRange kLaterMarks[] = {
    {0x0897, 0x0897},   {0x0CF3, 0x0CF3},   {0x0ECE, 0x0ECE},   {0x10D69, 0x10D6D},
    {0x10EFC, 0x10EFF}, {0x11241, 0x11241}, {0x113B8, 0x113C0}, {0x113C2, 0x113C2},
    {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2},
    {0x113E1, 0x113E2}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A},
    {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x1611E, 0x1612F}, {0x1E08F, 0x1E08F}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
};
constexpr CodePointRange kLaterNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59},
    {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3},
    {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA},
};
static_assert(IsSorted(kWhiteSpace) && IsSorted(kLaterLetters));
static_assert(IsSorted(kLaterMarks) && IsSorted(kLaterNumbers));

void AppendLiteral(char32_t code_point, std::string& out) {
  absl::StrAppendFormat(&out, "\\x{%x}", static_cast<uint32_t>(code_point));
}

void AppendRanges(std::span<const CodePointRange> ranges, std::string& out) {
  for (const CodePointRange& range : ranges) {
    AppendLiteral(range.first, out);
    if (range.last == range.first) continue;
    out += '-';
    AppendLiteral(range.last, out);
  }
}

// One escape or literal, as it stands inside or outside a class.
struct Item {
  std::optional<char32_t> code_point;  // a single character, or
  std::string set;                     // the inside of a class, or
  bool not_space = false;              // \S
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    HEARTH_RETURN_IF_ERROR(Alternatives(0));
    if (!AtEnd()) return Unsupported("an unopened )");
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return at_ == pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[at_]; }
  bool Take(std::string_view token) {
    if (pattern_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  absl::Status Unsupported(std::string_view construct) const {
    return absl::UnimplementedError(
        absl::StrCat("expected a construct this build translates, found ", ToAbsl(construct),
                     " at byte ", at_, " of the pattern"));
  }
  char32_t TakeCodePoint() {
    const std::string_view rest = pattern_.substr(at_);
    at_ += NextUtf8(rest).length_bytes;
    return CodePointAt(rest);
  }

  absl::Status Alternatives(uint32_t depth);
  absl::Status Group(uint32_t depth);
  absl::Status CaseBlind();
  absl::Status Class();
  absl::Status Quantifier();
  absl::Status Counted();
  absl::StatusOr<Item> Escape();

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

absl::Status Translator::Alternatives(uint32_t depth) {
  if (depth > kNestingMax) return Unsupported("too many nested groups");
  while (!AtEnd() && Peek() != ')') {
    if (Take("|")) {
      out_ += '|';
      continue;
    }
    if (Peek() == '(') {
      HEARTH_RETURN_IF_ERROR(Group(depth));
    } else if (Peek() == '[') {
      HEARTH_RETURN_IF_ERROR(Class());
    } else if (Peek() == '\\') {
      HEARTH_ASSIGN_OR_RETURN(const Item item, Escape());
      if (item.code_point) {
        AppendLiteral(*item.code_point, out_);
      } else {
        absl::StrAppend(&out_, item.not_space ? "[^" : "[", item.set, "]");
      }
    } else if (std::string_view("^$.*+?{}]").find(Peek()) != std::string_view::npos) {
      return Unsupported("a bare " + std::string(1, Peek()));
    } else {
      AppendLiteral(TakeCodePoint(), out_);
    }
    HEARTH_RETURN_IF_ERROR(Quantifier());
  }
  return absl::OkStatus();
}

absl::Status Translator::Group(uint32_t depth) {
  if (Take("(?i:")) return CaseBlind();
  if (Take("(?=")) {
    out_ += "(?=";
  } else if (Take("(?!")) {
    out_ += "(?!";
  } else if (Take("(?:")) {
    out_ += "(?:";
  } else if (pattern_.substr(at_, 2) == "(?") {
    return Unsupported("a group other than (?: (?i: (?= (?!");
  } else {
    ++at_;
    out_ += "(?:";
  }
  HEARTH_RETURN_IF_ERROR(Alternatives(depth + 1));
  if (!Take(")")) return Unsupported("the end inside a group");
  out_ += ')';
  return absl::OkStatus();
}

// Case-blind text is limited to ASCII alternatives without the pairs that Oniguruma also matches
// against one character (ss: U+00DF, st: U+FB06, ff, fi, fl: U+FB00 to U+FB02).
absl::Status Translator::CaseBlind() {
  out_ += "(?i:";
  char before = '\0';
  while (!Take(")")) {
    if (AtEnd()) return Unsupported("the end inside a group");
    const char c = Peek();
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'' || c == ' ';
    if (c != '|' && !plain) return Unsupported("(?i: around more than letters, ' and |");
    const char lower = plain ? static_cast<char>(c | 0x20) : c;
    const std::string pair = {before, lower};
    if (pair == "ss" || pair == "st" || pair == "ff" || pair == "fi" || pair == "fl") {
      return Unsupported(absl::StrCat("(?i: around the pair ", pair));
    }
    before = lower;
    ++at_;
    if (plain) {
      AppendLiteral(static_cast<char32_t>(static_cast<uint8_t>(c)), out_);
    } else {
      out_ += '|';
    }
  }
  out_ += ')';
  return absl::OkStatus();
}

absl::Status Translator::Class() {
  ++at_;
  out_ += Take("^") ? "[^" : "[";
  if (Peek() == ']') return Unsupported("an empty class");
  while (!Take("]")) {
    if (AtEnd()) return Unsupported("the end inside a class");
    if (Peek() == '[' || Peek() == '&' || Peek() == '-') {
      return Unsupported(absl::StrCat("an unescaped ", std::string(1, Peek()), " in a class"));
    }
    Item item;
    if (Peek() == '\\') {
      HEARTH_ASSIGN_OR_RETURN(item, Escape());
      if (item.not_space) return Unsupported("\\S in a class");
    } else {
      item.code_point = TakeCodePoint();
    }
    if (!item.code_point) {
      out_ += item.set;
      continue;
    }
    AppendLiteral(*item.code_point, out_);
    if (!Take("-")) continue;
    if (AtEnd() || Peek() == ']' || Peek() == '[' || Peek() == '\\') {
      return Unsupported("a range without a plain end");
    }
    const char32_t last = TakeCodePoint();
    if (last < *item.code_point) return Unsupported("a range whose end is before its start");
    out_ += '-';
    AppendLiteral(last, out_);
  }
  out_ += ']';
  return absl::OkStatus();
}

absl::Status Translator::Quantifier() {
  if (Peek() == '{') {
    HEARTH_RETURN_IF_ERROR(Counted());
  } else if (Peek() == '?' || Peek() == '*' || Peek() == '+') {
    out_ += pattern_[at_++];
  } else {
    return absl::OkStatus();
  }
  if (Take("?")) out_ += '?';
  if (Peek() == '+' || Peek() == '*' || Peek() == '?' || Peek() == '{') {
    return Unsupported("a quantifier after a quantifier");
  }
  return absl::OkStatus();
}

absl::Status Translator::Counted() {
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos) return Unsupported("a bare {");
  const std::string_view body = pattern_.substr(at_ + 1, end - at_ - 1);
  const size_t comma = body.find(',');
  uint32_t low = 0;
  uint32_t high = kRepeatMax;
  const auto number = [](std::string_view digits, uint32_t& value) {
    return absl::SimpleAtoi(ToAbsl(digits), &value) && digits.find('-') == std::string_view::npos &&
           digits.find('+') == std::string_view::npos && value <= kRepeatMax;
  };
  const bool has_high = comma != std::string_view::npos && comma + 1 < body.size();
  if (!number(body.substr(0, comma), low) || (has_high && !number(body.substr(comma + 1), high)) ||
      high < low) {
    return Unsupported("a counted quantifier other than {n} {n,} {n,m} with n <= m <= 1000");
  }
  if (comma == std::string_view::npos && end + 1 < pattern_.size() && pattern_[end + 1] == '?') {
    return Unsupported("a lazy {n}");  // Oniguruma reads {n}? as an optional group
  }
  absl::StrAppend(&out_, "{", low);
  if (comma != std::string_view::npos) out_ += ',';
  if (has_high) absl::StrAppend(&out_, high);
  out_ += '}';
  at_ = end + 1;
  return absl::OkStatus();
}

absl::StatusOr<Item> Translator::Escape() {
  Item item;
  const auto property = [&item](const char* name, std::span<const CodePointRange> later) {
    item.set = name;
    AppendRanges(later, item.set);
    return item;
  };
  if (Take("\\p{L}")) return property("\\p{L}", kLaterLetters);
  if (Take("\\p{M}")) return property("\\p{M}", kLaterMarks);
  if (Take("\\p{N}")) return property("\\p{N}", kLaterNumbers);
  const char name = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
  constexpr std::string_view kControls = "rntfv";
  constexpr std::string_view kControlValues = "\r\n\t\f\v";
  if (name == 's' || name == 'S') {
    AppendRanges(kWhiteSpace, item.set);
    item.not_space = name == 'S';
  } else if (const size_t i = kControls.find(name); i != std::string_view::npos) {
    item.code_point = static_cast<char32_t>(kControlValues[i]);
  } else if (name > ' ' && name < 0x7F && !absl::ascii_isalnum(static_cast<unsigned char>(name))) {
    item.code_point = static_cast<char32_t>(name);
  } else {
    const bool is_shown = absl::ascii_isgraph(static_cast<unsigned char>(name));
    return Unsupported(is_shown ? std::string("the escape \\") + name : "an escape of no letter");
  }
  at_ += 2;
  return item;
}

}  // namespace

absl::StatusOr<std::string> TranslateSplitPattern(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "expected a pattern of at most ", kPatternBytesMax, " bytes, found ", pattern.size()));
  }
  if (!IsValidUtf8(pattern)) {
    return absl::InvalidArgumentError("expected a pattern in UTF-8, found other bytes");
  }
  return Translator(pattern).Run();
}

}  // namespace hearth
