// A picture made of character cells, before any terminal: what `hearth top` draws into, what tests
// compare, and what is printed as plain or coloured text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::cli {

// What a cell means; whoever paints it knows the colours.
enum class Ink : uint8_t { kPlain, kDim, kStrong, kTitle, kVram, kPcie, kCpu, kSsd, kGood, kBad };
inline constexpr uint32_t kInkCount = 10;
inline constexpr uint32_t kShadeCount = 8;

struct Style {
  Ink ink = Ink::kPlain;
  // 0: the ink's own colour; for heat 1: none of it, 2 to kShadeCount: faint to full.
  uint8_t shade = 0;
  bool operator==(const Style&) const = default;
};

struct Cell {
  char32_t glyph = U' ';
  Style style;
  bool operator==(const Cell&) const = default;
};

class CellGrid {
 public:
  CellGrid(uint32_t rows, uint32_t columns)
      : rows_(rows), columns_(columns), cells_(size_t{rows} * columns) {}
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }
  const Cell& at(uint32_t row, uint32_t column) const {
    return cells_[size_t{row} * columns_ + column];
  }
  // What lies outside is not drawn.
  void Put(uint32_t row, uint32_t column, char32_t glyph, Style style);

 private:
  uint32_t rows_;
  uint32_t columns_;
  std::vector<Cell> cells_;
};

// A part of a grid, clipped; (0, 0) is its own corner.
class Area {
 public:
  explicit Area(CellGrid& grid) : Area(grid, 0, 0, grid.rows(), grid.columns()) {}
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }
  // The part of it that there is.
  Area Part(uint32_t row, uint32_t column, uint32_t rows, uint32_t columns) const;
  void Put(uint32_t row, uint32_t column, char32_t glyph, Style style) const;
  // UTF-8; every character one cell, control characters and what is no UTF-8 as '?'. Returns the
  // column after it.
  uint32_t Text(uint32_t row, uint32_t column, std::string_view text, Ink ink = Ink::kPlain) const;
  // Ends at the right edge.
  void TextRight(uint32_t row, std::string_view text, Ink ink = Ink::kPlain) const;

 private:
  Area(CellGrid& grid, uint32_t row, uint32_t column, uint32_t rows, uint32_t columns)
      : grid_(&grid), row_(row), column_(column), rows_(rows), columns_(columns) {}
  CellGrid* grid_;
  uint32_t row_;
  uint32_t column_;
  uint32_t rows_;
  uint32_t columns_;
};

// Characters of a text as Area::Text() draws them.
std::u32string GlyphsOf(std::string_view text);

// UTF-8 lines, each with a newline, without spaces at their ends.
std::string PlainText(const CellGrid& grid);
// The same with colours for a terminal of 256.
std::string ColouredText(const CellGrid& grid);

// The colour of a style among a terminal's 256; -1: its own.
int ColourOf(Style style);

}  // namespace hearth::cli
