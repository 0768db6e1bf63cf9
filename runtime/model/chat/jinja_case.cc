// Upper, lower and title case and the is...() properties of text, as Python's str has them.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "runtime/model/chat/jinja_case_table.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

enum class Case : uint8_t { kUpper, kLower, kTitle };

int32_t Signed(char32_t c) { return static_cast<int32_t>(c); }

bool IsCased(char32_t c) {
  return utf8proc_islower(Signed(c)) != 0 || utf8proc_isupper(Signed(c)) != 0 ||
         utf8proc_category(Signed(c)) == UTF8PROC_CATEGORY_LT;
}

// Characters that do not count as the neighbours of a final sigma.
bool IsCaseIgnorable(char32_t c) {
  switch (utf8proc_category(Signed(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// Whether the sigma at `at` ends a word: lower case then is U+03C2.
bool IsFinalSigma(std::string_view text, size_t at) {
  bool preceded = false;
  for (size_t i = at; i > 0 && !preceded;) {
    do {
      --i;
    } while ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80);
    const char32_t c = DecodeAt(text, i);
    if (IsCaseIgnorable(c)) continue;
    if (!IsCased(c)) return false;
    preceded = true;
  }
  if (!preceded) return false;
  for (size_t i = NextCodePoint(text, at); i < text.size(); i = NextCodePoint(text, i)) {
    const char32_t c = DecodeAt(text, i);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

void AppendCased(std::string& out, std::string_view text, size_t at, Case target) {
  const char32_t c = DecodeAt(text, at);
  if (target == Case::kLower) {
    if (c == 0x3A3) {
      AppendCodePoint(out, IsFinalSigma(text, at) ? 0x3C2 : 0x3C3);
    } else if (c == 0x130) {
      out += "i\xCC\x87";  // the one long lower case: i and a combining dot
    } else {
      AppendCodePoint(out, static_cast<char32_t>(utf8proc_tolower(Signed(c))));
    }
    return;
  }
  const auto* found = std::lower_bound(
      std::begin(kLongCaseMappings), std::end(kLongCaseMappings), c,
      [](const LongCaseMapping& mapping, char32_t value) { return mapping.code_point < value; });
  if (found != std::end(kLongCaseMappings) && found->code_point == c) {
    out += reinterpret_cast<const char*>(target == Case::kUpper ? found->upper : found->title);
    return;
  }
  AppendCodePoint(out, static_cast<char32_t>(target == Case::kUpper ? utf8proc_toupper(Signed(c))
                                                                    : utf8proc_totitle(Signed(c))));
}

bool IsDigit(char32_t c) {
  if (utf8proc_category(Signed(c)) == UTF8PROC_CATEGORY_ND) return true;
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490);
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(Signed(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(Signed(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool CodePointHas(char32_t c, Property property) {
  switch (property) {
    case Property::kDigit:
      return IsDigit(c);
    case Property::kDecimal:
      return utf8proc_category(Signed(c)) == UTF8PROC_CATEGORY_ND;
    case Property::kNumeric:
      return IsNumeric(c);
    case Property::kAlpha:
      return IsAlpha(c);
    case Property::kAlnum:
      return IsAlpha(c) || IsNumeric(c) || IsDigit(c);
    case Property::kSpace:
      return IsSpace(c);
    case Property::kLower:
      return utf8proc_islower(Signed(c)) != 0;
    case Property::kUpper:
      return utf8proc_isupper(Signed(c)) != 0;
  }
  return false;
}

}  // namespace

std::string ToUpper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at = NextCodePoint(text, at)) {
    AppendCased(out, text, at, Case::kUpper);
  }
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at = NextCodePoint(text, at)) {
    AppendCased(out, text, at, Case::kLower);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at = NextCodePoint(text, at)) {
    AppendCased(out, text, at, in_word ? Case::kLower : Case::kTitle);
    in_word = IsCased(DecodeAt(text, at));
  }
  return out;
}

std::string ToCapitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at = NextCodePoint(text, at)) {
    AppendCased(out, text, at, at == 0 ? Case::kTitle : Case::kLower);
  }
  return out;
}

bool HasProperty(std::string_view text, Property property) {
  const bool cased_only = property == Property::kLower || property == Property::kUpper;
  bool seen = false;
  for (size_t at = 0; at < text.size(); at = NextCodePoint(text, at)) {
    const char32_t c = DecodeAt(text, at);
    if (cased_only && !IsCased(c)) continue;
    if (!CodePointHas(c, property)) return false;
    seen = true;
  }
  return seen;
}

}  // namespace hearth::jinja
