// NFC in short segments: plain characters are copied, and each run of others is normalised together
// with the one character before it, which is all the context that composition can reach.
#include "runtime/model/tokenizer/nfc.h"

#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "runtime/base/check.h"
#include "runtime/model/tokenizer/code_point_ranges.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

// Blocks of frequent scripts whose every code point, assigned or not, is a starter that is not
// changed by NFC and is never the second half of a composition.
constexpr CodePointRange kPlainRanges[] = {
    {0x0000, 0x02FF},    // Latin
    {0x0400, 0x0482},    // Cyrillic, up to its first combining mark
    {0x2010, 0x2027},    // dashes, quotation marks
    {0x2030, 0x205E},    // per mille to four dots
    {0x2190, 0x2328},    // arrows, mathematics, technical
    {0x2500, 0x27FF},    // box drawing to arrows
    {0x3001, 0x3029},    // CJK punctuation
    {0x3041, 0x3098},    // Hiragana
    {0x309B, 0x30FF},    // Katakana
    {0x4E00, 0x9FFF},    // CJK ideographs
    {0xAC00, 0xD7A3},    // Hangul syllables
    {0xFF00, 0xFFEF},    // half- and full-width forms
    {0x1F300, 0x1F6FF},  // pictographs, emoticons, transport
    {0x1F900, 0x1F9FF},  // more pictographs
};
static_assert(IsSorted(kPlainRanges));

// Code points that Unicode 15.0 reorders or composes and Unicode 9.0 does not know: combining marks
// added in between, and U+11930 with its composition U+11938.
constexpr CodePointRange kLaterMarks[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
    {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};
static_assert(IsSorted(kLaterMarks));

struct FreeDeleter {
  void operator()(utf8proc_uint8_t* p) const { std::free(p); }
};

void AppendNormalized(std::string_view segment, std::string& out) {
  utf8proc_uint8_t* raw = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length_bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()),
                   static_cast<utf8proc_ssize_t>(segment.size()), &raw, options);
  const std::unique_ptr<utf8proc_uint8_t, FreeDeleter> mapped(raw);
  if (length_bytes < 0) {  // no memory, or longer than utf8proc counts: leave the text as it is
    out.append(segment);
    return;
  }
  out.append(reinterpret_cast<const char*>(mapped.get()), static_cast<size_t>(length_bytes));
}

}  // namespace

bool IsPlainForNfc(char32_t code_point) {
  return code_point < 0x300 || Contains(kPlainRanges, code_point);
}

std::string NormalizeNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t segment_begin = 0;  // everything before it is in `out`
  size_t last_begin = 0;     // of the character before `at`
  bool plain_so_far = true;  // [segment_begin, at) needs no work
  const auto flush = [&](size_t end) {
    const std::string_view segment = text.substr(segment_begin, end - segment_begin);
    if (plain_so_far) {
      out.append(segment);
    } else {
      AppendNormalized(segment, out);
    }
    segment_begin = end;
    plain_so_far = true;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.substr(at));
    HEARTH_DCHECK(step.kind == Utf8Step::Kind::kCharacter);
    const char32_t code_point = CodePointAt(text.substr(at));
    if (IsPlainForNfc(code_point)) {
      if (!plain_so_far) flush(at);
    } else if (Contains(kLaterMarks, code_point)) {
      flush(at);
      out.append(text.substr(at, step.length_bytes));
      segment_begin = at + step.length_bytes;
    } else if (plain_so_far) {
      if (segment_begin < at) flush(last_begin);
      plain_so_far = false;
    }
    last_begin = at;
    at += step.length_bytes;
  }
  flush(text.size());
  return out;
}

}  // namespace hearth
