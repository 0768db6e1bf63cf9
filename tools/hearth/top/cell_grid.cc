#include "tools/hearth/top/cell_grid.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace hearth::cli {
namespace {

constexpr char32_t kUnknown = U'?';

// One code point from the front of `text`; kUnknown for a byte that begins none.
char32_t TakeCodePoint(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80       ? 1
                        : first >> 5 == 6  ? 2
                        : first >> 4 == 14 ? 3
                        : first >> 3 == 30 ? 4
                                           : 0;
  if (length == 0 || length > text.size()) return text.remove_prefix(1), kUnknown;
  char32_t point = length == 1 ? first : first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return text.remove_prefix(1), kUnknown;
    point = point << 6 | (byte(i) & 0x3F);
  }
  text.remove_prefix(length);
  return point;
}

void AppendUtf8(char32_t point, std::string& out) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xC0 | point >> 6);
    add(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    add(0xE0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3F));
    add(0x80 | (point & 0x3F));
  } else {
    add(0xF0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3F));
    add(0x80 | (point >> 6 & 0x3F));
    add(0x80 | (point & 0x3F));
  }
}

uint32_t ColumnsUsed(const CellGrid& grid, uint32_t row) {
  uint32_t end = grid.columns();
  while (end > 0 && grid.at(row, end - 1).glyph == U' ') --end;
  return end;
}

std::string Escape(Style style) {
  std::string codes = "0";
  if (style.ink == Ink::kStrong || style.ink == Ink::kTitle) codes += ";1";
  if (const int colour = ColourOf(style); colour >= 0) absl::StrAppend(&codes, ";38;5;", colour);
  return absl::StrCat("\x1b[", codes, "m");
}

}  // namespace

void CellGrid::Put(uint32_t row, uint32_t column, char32_t glyph, Style style) {
  if (row >= rows_ || column >= columns_) return;
  cells_[size_t{row} * columns_ + column] = {glyph, style};
}

Area Area::Part(uint32_t row, uint32_t column, uint32_t rows, uint32_t columns) const {
  const uint32_t r = std::min(row, rows_);
  const uint32_t c = std::min(column, columns_);
  return Area(*grid_, row_ + r, column_ + c, std::min(rows, rows_ - r),
              std::min(columns, columns_ - c));
}

void Area::Put(uint32_t row, uint32_t column, char32_t glyph, Style style) const {
  if (row < rows_ && column < columns_) grid_->Put(row_ + row, column_ + column, glyph, style);
}

uint32_t Area::Text(uint32_t row, uint32_t column, std::string_view text, Ink ink) const {
  for (const char32_t glyph : GlyphsOf(text)) Put(row, column++, glyph, {ink});
  return column;
}

void Area::TextRight(uint32_t row, std::string_view text, Ink ink) const {
  const std::u32string glyphs = GlyphsOf(text);
  const auto length = static_cast<uint32_t>(glyphs.size());
  uint32_t column = columns_ > length ? columns_ - length : 0;
  for (const char32_t glyph : glyphs) Put(row, column++, glyph, {ink});
}

std::u32string GlyphsOf(std::string_view text) {
  std::u32string glyphs;
  while (!text.empty()) {
    const char32_t point = TakeCodePoint(text);
    const bool is_control = point < 0x20 || (point >= 0x7F && point < 0xA0);
    glyphs += is_control || point > 0x10FFFF ? kUnknown : point;
  }
  return glyphs;
}

std::string PlainText(const CellGrid& grid) {
  std::string text;
  for (uint32_t r = 0; r < grid.rows(); ++r) {
    for (uint32_t c = 0; c < ColumnsUsed(grid, r); ++c) AppendUtf8(grid.at(r, c).glyph, text);
    text += '\n';
  }
  return text;
}

std::string ColouredText(const CellGrid& grid) {
  std::string text;
  for (uint32_t r = 0; r < grid.rows(); ++r) {
    Style style;
    for (uint32_t c = 0; c < ColumnsUsed(grid, r); ++c) {
      const Cell& cell = grid.at(r, c);
      if (cell.style != style && cell.glyph != U' ') {
        style = cell.style;
        text += Escape(style);
      }
      AppendUtf8(cell.glyph, text);
    }
    if (style != Style()) text += "\x1b[0m";
    text += '\n';
  }
  return text;
}

int ColourOf(Style style) {
  // Of the 6 x 6 x 6 cube; the four services differ in brightness, too.
  static constexpr std::array<int, kInkCount> kOwn = {-1, 244, -1, -1, 114, 75, 221, 203, 114, 203};
  static constexpr std::array<std::array<int, kShadeCount>, 4> kShades = {
      {{236, 22, 28, 34, 40, 77, 114, 157},       // vram
       {236, 17, 18, 25, 31, 38, 75, 117},        // pcie
       {236, 58, 94, 136, 142, 178, 221, 229},    // cpu
       {236, 52, 88, 124, 160, 167, 203, 210}}};  // ssd
  const auto ink = static_cast<size_t>(style.ink);
  if (style.shade == 0) return kOwn[ink];
  if (style.ink < Ink::kVram || style.ink > Ink::kSsd) return kOwn[ink];
  return kShades[ink - static_cast<size_t>(Ink::kVram)]
                [std::min<size_t>(style.shade, kShadeCount) - 1];
}

}  // namespace hearth::cli
