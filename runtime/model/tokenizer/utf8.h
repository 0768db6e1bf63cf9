// UTF-8 as text and as broken text. Broken bytes become U+FFFD, one for each maximal part of a
// character (Unicode 15.0, section 3.9, "Substitution of Maximal Subparts"), as Python's
// bytes.decode('utf-8', errors='replace') and the WHATWG decoder do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind {
    kCharacter,   // `length_bytes` bytes are one character
    kBroken,      // `length_bytes` bytes can begin no character together with what follows them
    kIncomplete,  // all the bytes there are, and they begin a character
  };
  Kind kind;
  uint32_t length_bytes;  // 1..4
};

// What `bytes`, which is not empty, begins with.
Utf8Step NextUtf8(std::string_view bytes);

// The code point that the valid character at the front of `text` encodes.
char32_t CodePointAt(std::string_view text);

// Appends `code_point`, a Unicode scalar value, as UTF-8.
void AppendUtf8(char32_t code_point, std::string& out);

bool IsValidUtf8(std::string_view bytes);

// Appends `bytes` with every broken or incomplete part replaced by U+FFFD.
void AppendReplacingBroken(std::string_view bytes, std::string& out);

}  // namespace hearth
