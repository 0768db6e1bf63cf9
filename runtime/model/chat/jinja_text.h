// Python's view of text over UTF-8 bytes: code points, white space, case, slices, splitting,
// repr().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::jinja {

bool IsValidUtf8(std::string_view text);

// The rest REQUIRE valid UTF-8.
int64_t CountCodePoints(std::string_view text);
size_t NextCodePoint(std::string_view text, size_t at);  // byte offset after the one at `at`
char32_t DecodeAt(std::string_view text, size_t at);
void AppendCodePoint(std::string& out, char32_t code_point);
// The byte offset of code point `index`, at most text.size().
size_t OffsetOfCodePoint(std::string_view text, int64_t index);

bool IsSpace(char32_t code_point);  // str.isspace
enum class Sides : uint8_t { kLeft, kRight, kBoth };
// Without `chars`, white space.
std::string_view Strip(std::string_view text, Sides sides,
                       std::optional<std::string_view> chars = std::nullopt);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);        // str.title
std::string ToCapitalized(std::string_view text);  // str.capitalize

enum class Property : uint8_t {
  kDigit,    // str.isdigit
  kDecimal,  // str.isdecimal
  kNumeric,  // str.isnumeric
  kAlpha,
  kAlnum,
  kSpace,
  kLower,  // at least one cased character, and all of those lower
  kUpper,
};
bool HasProperty(std::string_view text, Property property);  // false for ""

// str.split and str.rsplit; count_max < 0 is no bound. Without a separator, runs of white space.
enum class From : uint8_t { kLeft, kRight };
std::vector<std::string_view> Split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t count_max,
                                    From from);
enum class LineEnds : uint8_t { kDrop, kKeep };
std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends);

// `out` of at most `bytes_max`, or nullopt.
std::optional<std::string> Replace(std::string_view text, std::string_view from,
                                   std::string_view to, int64_t count_max, size_t bytes_max);

std::string EscapeMarkup(std::string_view text);  // & < > ' "
std::string Repr(std::string_view text);          // 'text', as Python's repr
std::string FloatRepr(double value);              // 1.0, 1e+16, 0.1, inf

}  // namespace hearth::jinja
