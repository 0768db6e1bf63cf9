// The lexer: text and tags in Lexer, names, numbers, strings and operators in TagLexer's functions.
#include "runtime/model/chat/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

// Line ends become \n, and one at the end of the file goes away, as Jinja has it.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Lexer {
 public:
  Lexer(const std::string& source, const std::string& path) : source_(source), path_(path) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) HEARTH_RETURN_IF_ERROR(LexText());
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Mark : uint8_t { kNone, kMinus, kPlus };

  absl::Status Fail(std::string_view message) const { return SyntaxError(path_, line_, message); }

  void Push(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text), .value = {}});
  }

  // Moves to `to`, counting lines.
  void Advance(size_t to) {
    line_ +=
        static_cast<int32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                        source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  bool StartsAt(size_t at, std::string_view text) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size() && IsSpace(DecodeAt(source_, at))) at = NextCodePoint(source_, at);
    return at;
  }

  Mark MarkAt(size_t at) const {
    if (at >= source_.size()) return Mark::kNone;
    return source_[at] == '-' ? Mark::kMinus : source_[at] == '+' ? Mark::kPlus : Mark::kNone;
  }

  // The end of a tag's `close` ("%}" or "#}") at `at` with its mark and what it trims, or npos.
  size_t EndOfClose(size_t at, std::string_view close) const {
    if (MarkAt(at) == Mark::kPlus && StartsAt(at + 1, close)) return at + 1 + close.size();
    if (MarkAt(at) == Mark::kMinus && StartsAt(at + 1, close)) {
      return SkipSpace(at + 1 + close.size());
    }
    if (!StartsAt(at, close)) return std::string::npos;
    const size_t end = at + close.size();
    return end < source_.size() && source_[end] == '\n' ? end + 1 : end;  // trim_blocks
  }

  // Text before a tag that begins at `end`, with what the tag's mark or lstrip_blocks strips.
  void PushText(size_t end, Mark mark, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (mark == Mark::kMinus) {
      text = Strip(text, Sides::kRight);
    } else if (mark == Mark::kNone && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if (line_begin > 0 || at_line_start_) {
        if (Strip(text.substr(line_begin), Sides::kLeft).empty()) text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) Push(TokenKind::kData, std::string(text));
    Advance(end);
  }

  void NoteLineStart() { at_line_start_ = at_ > 0 && source_[at_ - 1] == '\n'; }

  // Text up to the next tag, and that tag.
  absl::Status LexText() {
    size_t begin = at_;
    while (true) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos || begin + 1 >= source_.size()) {
        Push(TokenKind::kData, source_.substr(at_));
        Advance(source_.size());
        return absl::OkStatus();
      }
      const char kind = source_[begin + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++begin;
    }
    const Mark mark = MarkAt(begin + 2);
    const char kind = source_[begin + 1];
    PushText(begin, mark, kind == '{');
    const size_t inside = begin + 2 + (mark == Mark::kNone ? 0 : 1);
    if (kind == '#') return LexComment(inside);
    if (kind == '%') {
      const size_t raw_end = EndOfRawBegin(inside);
      if (raw_end != std::string::npos) return LexRaw(raw_end);
    }
    Push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    Advance(inside);
    return LexTag(kind == '{' ? "}}" : "%}");
  }

  absl::Status LexComment(size_t inside) {
    for (size_t at = inside; at < source_.size(); ++at) {
      const size_t end = EndOfClose(at, "#}");
      if (end == std::string::npos) continue;
      Advance(end);
      NoteLineStart();
      return absl::OkStatus();
    }
    return Fail("Missing end of comment tag");
  }

  // After "{%": the end of " raw %}", or npos where it is another tag.
  size_t EndOfRawBegin(size_t at) const {
    at = SkipSpace(at);
    if (!StartsAt(at, "raw")) return std::string::npos;
    at = SkipSpace(at + 3);
    if (StartsAt(at, "-%}")) return SkipSpace(at + 3);
    return StartsAt(at, "%}") ? at + 2 : std::string::npos;
  }

  absl::Status LexRaw(size_t inside) {
    Advance(inside);
    NoteLineStart();
    for (size_t begin = source_.find("{%", at_); begin != std::string::npos;
         begin = source_.find("{%", begin + 1)) {
      const Mark mark = MarkAt(begin + 2);
      size_t at = SkipSpace(begin + 2 + (mark == Mark::kNone ? 0 : 1));
      if (!StartsAt(at, "endraw")) continue;
      at = EndOfClose(SkipSpace(at + 6), "%}");
      if (at == std::string::npos) continue;
      PushText(begin, mark, false);
      Advance(at);
      NoteLineStart();
      return absl::OkStatus();
    }
    return Fail("Missing end of raw directive");
  }

  // What stands inside a tag, up to its end.
  absl::Status LexTag(std::string_view close) {
    std::string brackets;  // the closing ones that are due
    while (at_ < source_.size()) {
      if (brackets.empty()) {
        size_t end = std::string::npos;
        if (close == "%}") {
          end = EndOfClose(at_, close);
        } else if (StartsAt(at_, "-}}")) {
          end = SkipSpace(at_ + 3);
        } else if (StartsAt(at_, "}}")) {
          end = at_ + 2;
        }
        if (end != std::string::npos) {
          Push(close == "%}" ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          Advance(end);
          NoteLineStart();
          return absl::OkStatus();
        }
      }
      HEARTH_RETURN_IF_ERROR(LexOne(brackets));
    }
    return Fail("unexpected end of template inside a tag");
  }

  absl::Status LexOne(std::string& brackets) {
    const char c = source_[at_];
    const size_t space_end = SkipSpace(at_);
    if (space_end > at_) {
      Advance(space_end);
      return absl::OkStatus();
    }
    if (IsDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Push(TokenKind::kName, source_.substr(at_, end - at_));
      at_ = end;
      return absl::OkStatus();
    }
    if (c == '\'' || c == '"') return LexString(c);
    return LexOperator(brackets);
  }

  // Digits with single underscores between them, from `at`; returns where they end.
  template <class Accepts>
  size_t EndOfDigits(size_t at, Accepts accepts) const {
    while (at < source_.size()) {
      if (accepts(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && accepts(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  // The end of a float literal at at_, or npos.
  size_t EndOfFloat() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::string::npos;
    size_t at = EndOfDigits(at_, IsDigit);
    bool is_float = false;
    if (at + 1 < source_.size() && source_[at] == '.' && IsDigit(source_[at + 1])) {
      at = EndOfDigits(at + 1, IsDigit);
      is_float = true;
    }
    if (at < source_.size() && (source_[at] == 'e' || source_[at] == 'E')) {
      size_t exponent = at + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && IsDigit(source_[exponent])) {
        return EndOfDigits(exponent, IsDigit);
      }
    }
    return is_float ? at : std::string::npos;
  }

  absl::Status LexNumber() {
    size_t end = EndOfFloat();
    if (end != std::string::npos) {
      const std::string digits = absl::StrReplaceAll(source_.substr(at_, end - at_), {{"_", ""}});
      PushNumber(Value::Float(std::strtod(digits.c_str(), nullptr)), end);
      return absl::OkStatus();
    }
    int base = 10;
    size_t begin = at_;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10) begin += 2;
    }
    const auto accepts = [base](char c) {
      return base == 16 ? IsHexDigit(c) : c >= '0' && c < '0' + base;
    };
    end = EndOfDigits(begin, accepts);
    if (base == 10 && source_[at_] == '0') {  // 0, 00: but 012 is two tokens
      end = EndOfDigits(begin, [](char c) { return c == '0'; });
    }
    const std::string digits = absl::StrReplaceAll(source_.substr(begin, end - begin), {{"_", ""}});
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc() || digits.empty()) {
      return Fail(absl::StrCat("the integer '",
                               source_.substr(at_, std::min<size_t>(end - at_, 40)),
                               "' does not fit in 64 bits or has no digits"));
    }
    PushNumber(Value::Int(value), end);
    return absl::OkStatus();
  }

  void PushNumber(Value value, size_t end) {
    Push(TokenKind::kNumber, source_.substr(at_, end - at_));
    tokens_.back().value = std::move(value);
    at_ = end;
  }

  absl::Status LexOperator(std::string& brackets) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!StartsAt(at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty()) return Fail("unexpected '" + std::string(op) + "'");
        if (brackets.back() != op[0]) {
          return Fail("unexpected '" + std::string(op) + "', expected '" + brackets.back() + "'");
        }
        brackets.pop_back();
      }
      Push(TokenKind::kOperator, std::string(op));
      at_ += op.size();
      return absl::OkStatus();
    }
    return Fail("unexpected character " +
                Repr(source_.substr(at_, NextCodePoint(source_, at_) - at_)));
  }

  absl::Status LexString(char quote) {
    std::string text;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        text += source_[at++];
        continue;
      }
      ++at;
      if (at >= source_.size()) break;
      if (!Unescape(at, text)) {
        return Fail("an escape in a string that is not supported: '\\" +
                    source_.substr(at, NextCodePoint(source_, at) - at) + "'");
      }
    }
    if (at >= source_.size()) return Fail("unexpected character: a string without an end");
    Push(TokenKind::kString, std::move(text));
    Advance(at + 1);
    return absl::OkStatus();
  }

  // The escape whose letter is at `at`: appends what it stands for and moves behind it.
  bool Unescape(size_t& at, std::string& text) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[at];
    if (const size_t index = kLetters.find(c); index != std::string_view::npos) {
      text += kMeanings[index];
      ++at;
      return true;
    }
    if (c == '\n') {
      ++at;
      return true;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      for (int i = 0; i < 3 && at < source_.size() && source_[at] >= '0' && source_[at] <= '7';
           ++i) {
        value = value * 8 + static_cast<char32_t>(source_[at++] - '0');
      }
      AppendCodePoint(text, value);
      return true;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t value = 0;
      if (at + 1 + digits > source_.size()) return false;
      const char* begin = source_.data() + at + 1;
      const auto result = std::from_chars(begin, begin + digits, value, 16);
      if (result.ptr != begin + digits || result.ec != std::errc()) return false;
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
      AppendCodePoint(text, value);
      at += 1 + digits;
      return true;
    }
    if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) return false;
    text += '\\';  // Python keeps what it does not know
    return true;
  }

  const std::string& source_;
  const std::string& path_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool at_line_start_ = true;  // the text behind the last tag begins a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status SyntaxError(std::string_view path, int32_t line, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(path), ":", line, ": ", ToAbsl(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source, const std::string& path) {
  if (source.size() > kTemplateBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": a template of ", source.size(),
                                                     " bytes, at most ", kTemplateBytesMax));
  }
  if (!IsValidUtf8(source)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the template is not UTF-8"));
  }
  const std::string normalized = NormalizeLines(source);
  return Lexer(normalized, path).Run();
}

}  // namespace hearth::jinja
