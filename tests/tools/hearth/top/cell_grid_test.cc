// Cells outside are not drawn, text is one cell a character whatever its bytes, and coloured text
// is plain text with colours.
#include "tools/hearth/top/cell_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace hearth::cli {
namespace {

std::string WithoutColours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

TEST(CellGrid, WhatLiesOutsideIsNotDrawn) {
  CellGrid grid(2, 3);
  const Area all(grid);
  all.Text(0, 1, "abcdef");
  all.Text(7, 0, "x");
  all.Text(1, 7, "x");
  EXPECT_EQ(PlainText(grid), " ab\n\n");
  CellGrid none(0, 0);
  Area(none).Text(0, 0, "x");
  EXPECT_EQ(PlainText(none), "");
}

TEST(CellGrid, PartsAreClippedToTheWhole) {
  CellGrid grid(3, 6);
  const Area part = Area(grid).Part(1, 2, 9, 9);
  EXPECT_EQ(part.rows(), 2u);
  EXPECT_EQ(part.columns(), 4u);
  part.Text(0, 0, "abcdef");
  part.TextRight(1, "yz");
  EXPECT_EQ(PlainText(grid), "\n  abcd\n    yz\n");
  EXPECT_EQ(Area(grid).Part(5, 9, 1, 1).columns(), 0u);
  part.Part(0, 3, 1, 1).TextRight(0, "12345");
  EXPECT_EQ(grid.at(1, 5).glyph, U'1');
}

TEST(CellGrid, OneCharacterIsOneCell) {
  CellGrid grid(1, 10);
  EXPECT_EQ(Area(grid).Text(0, 0, "é█🙂a"), 4u);
  EXPECT_EQ(PlainText(grid), "é█🙂a\n");
}

TEST(CellGrid, ControlCharactersAndBrokenUtf8AreQuestionMarks) {
  EXPECT_EQ(GlyphsOf("a\x1b[2J\n\xff\xc3"), U"a?[2J???");
  EXPECT_EQ(GlyphsOf(std::string("\x00\x7f\xc2\x9b", 4)), U"???");  // C1 controls, too
  EXPECT_EQ(GlyphsOf("\xf0\x9f"), U"??");
}

TEST(CellGrid, ColouredTextIsPlainTextWithColours) {
  CellGrid grid(2, 8);
  Area(grid).Text(0, 0, "ab", Ink::kVram);
  Area(grid).Text(0, 3, "cd", Ink::kBad);
  Area(grid).Text(1, 0, "plain");
  const std::string text = ColouredText(grid);
  EXPECT_EQ(WithoutColours(text), PlainText(grid));
  EXPECT_EQ(text, "\x1b[0;38;5;114mab \x1b[0;38;5;203mcd\x1b[0m\nplain\n");
}

TEST(CellGrid, ShadesOfAServiceDiffer) {
  for (const Ink ink : {Ink::kVram, Ink::kPcie, Ink::kCpu, Ink::kSsd}) {
    for (uint8_t shade = 1; shade < kShadeCount; ++shade) {
      EXPECT_NE(ColourOf({ink, shade}), ColourOf({ink, static_cast<uint8_t>(shade + 1)}));
    }
  }
}

}  // namespace
}  // namespace hearth::cli
