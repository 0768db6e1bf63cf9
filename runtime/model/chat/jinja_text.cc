// Text over UTF-8: white space, stripping, splitting and repr(). Case is in jinja_case.cc.
#include "runtime/model/chat/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace hearth::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Whether `c` ends a line for str.splitlines.
bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

size_t PreviousCodePoint(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && IsContinuation(text[at]));
  return at;
}

// Whether `code_point` is one of those of `chars`, or white space without it.
bool IsIn(char32_t code_point, std::optional<std::string_view> chars) {
  if (!chars) return IsSpace(code_point);
  for (size_t at = 0; at < chars->size(); at = NextCodePoint(*chars, at)) {
    if (DecodeAt(*chars, at) == code_point) return true;
  }
  return false;
}

// str.isprintable for one code point.
bool IsPrintable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    if (bytes[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t taken =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (taken <= 0) return false;
    at += static_cast<size_t>(taken);
  }
  return true;
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += IsContinuation(c) ? 0 : 1;
  return count;
}

size_t NextCodePoint(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && IsContinuation(text[at])) ++at;
  return at;
}

char32_t DecodeAt(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return lead;
  const int trail_count = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code_point = lead & (0x3F >> trail_count);
  for (int i = 1; i <= trail_count && at + static_cast<size_t>(i) < text.size(); ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  }
  return code_point;
}

void AppendCodePoint(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

size_t OffsetOfCodePoint(std::string_view text, int64_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at = NextCodePoint(text, at);
    --index;
  }
  return at;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view Strip(std::string_view text, Sides sides, std::optional<std::string_view> chars) {
  if (sides != Sides::kRight) {
    while (!text.empty() && IsIn(DecodeAt(text, 0), chars)) {
      text.remove_prefix(NextCodePoint(text, 0));
    }
  }
  if (sides != Sides::kLeft) {
    while (!text.empty()) {
      const size_t last = PreviousCodePoint(text, text.size());
      if (!IsIn(DecodeAt(text, last), chars)) break;
      text = text.substr(0, last);
    }
  }
  return text;
}

namespace {

std::vector<std::string_view> SplitWords(std::string_view text, int64_t count_max, From from) {
  std::vector<std::string_view> words;
  const Sides near = from == From::kLeft ? Sides::kLeft : Sides::kRight;
  text = Strip(text, near);
  while (!text.empty()) {
    if (count_max >= 0 && static_cast<int64_t>(words.size()) == count_max) {
      words.push_back(text);  // the rest is one piece, with the white space at its far end
      break;
    }
    if (from == From::kLeft) {
      size_t end = 0;
      while (end < text.size() && !IsSpace(DecodeAt(text, end))) end = NextCodePoint(text, end);
      words.push_back(text.substr(0, end));
      text = text.substr(end);
    } else {
      size_t begin = text.size();
      while (begin > 0) {
        const size_t previous = PreviousCodePoint(text, begin);
        if (IsSpace(DecodeAt(text, previous))) break;
        begin = previous;
      }
      words.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
    text = Strip(text, near);
  }
  if (from == From::kRight) std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t count_max,
                                    From from) {
  if (!separator) return SplitWords(text, count_max, from);
  std::vector<std::string_view> pieces;
  while (count_max < 0 || static_cast<int64_t>(pieces.size()) < count_max) {
    const size_t at = from == From::kLeft ? text.find(*separator) : text.rfind(*separator);
    if (at == std::string_view::npos) break;
    if (from == From::kLeft) {
      pieces.push_back(text.substr(0, at));
      text = text.substr(at + separator->size());
    } else {
      pieces.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
  }
  pieces.push_back(text);
  if (from == From::kRight) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t next = NextCodePoint(text, at);
    const char32_t c = DecodeAt(text, at);
    if (IsLineEnd(c)) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (ends == LineEnds::kKeep ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::optional<std::string> Replace(std::string_view text, std::string_view from,
                                   std::string_view to, int64_t count_max, size_t bytes_max) {
  std::string out;
  int64_t count = 0;
  size_t at = 0;
  while (count_max < 0 || count < count_max) {
    size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at));
    out.append(to);
    ++count;
    at = found + from.size();
    if (from.empty()) {  // before every code point and at the end
      if (at >= text.size()) return out.size() <= bytes_max ? std::optional(out) : std::nullopt;
      const size_t next = NextCodePoint(text, at);
      out.append(text.substr(at, next - at));
      at = next;
    }
    if (out.size() > bytes_max) return std::nullopt;
  }
  out.append(text.substr(at));
  if (out.size() > bytes_max) return std::nullopt;
  return out;
}

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t next = NextCodePoint(text, at);
    const char32_t c = DecodeAt(text, at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out.append(text.substr(at, next - at));
    } else {
      char escape[16];
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape, sizeof(escape), format, static_cast<unsigned>(c));
      out += escape;
    }
    at = next;
  }
  return out + quote;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back; Python prints them plainly for exponents -4 to 15.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  std::string sign;
  if (text[0] == '-') sign = "-";
  std::string digits;
  for (size_t i = sign.size(); i < e; ++i) {
    if (text[i] != '.') digits += text[i];
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto point = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= point) return sign + digits + std::string(point - digits.size(), '0') + ".0";
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

}  // namespace hearth::jinja
