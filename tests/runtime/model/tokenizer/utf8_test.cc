// Goal: broken UTF-8 is replaced as Python's bytes.decode('utf-8', errors='replace') does, and
// valid text passes. Method: the cases of the Unicode standard, and all code points.
#include "runtime/model/tokenizer/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth {
namespace {

std::string Repaired(std::string_view bytes) {
  std::string out;
  AppendReplacingBroken(bytes, out);
  return out;
}

std::string Marks(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += kReplacementCharacter;
  return out;
}

TEST(Utf8, EachMaximalPartBecomesOneMark) {
  EXPECT_EQ(Repaired("\xFF"), Marks(1));
  EXPECT_EQ(Repaired("\xC0\x80"), Marks(2));             // overlong
  EXPECT_EQ(Repaired("\xE0\x80\x80"), Marks(3));         // overlong
  EXPECT_EQ(Repaired("\xED\xA0\x80"), Marks(3));         // surrogate
  EXPECT_EQ(Repaired("\xF4\x90\x80\x80"), Marks(4));     // beyond U+10FFFF
  EXPECT_EQ(Repaired("\xF0\x9F"), Marks(1));             // cut short
  EXPECT_EQ(Repaired("\xF0\x9F\xA7"), Marks(1));         // cut short
  EXPECT_EQ(Repaired("\xF0\x9F\xA7x"), Marks(1) + "x");  // broken off
  EXPECT_EQ(Repaired("\xE2\x82\xE2\x82\xAC"), Marks(1) + "\u20ac");
  EXPECT_EQ(Repaired("a\x80\x80z"), "a" + Marks(2) + "z");
  // The example of the Unicode standard, table 3-11.
  EXPECT_EQ(Repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), Marks(4) + "A");
}

TEST(Utf8, EveryCodePointPasses) {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string one;
    AppendUtf8(c, one);
    ASSERT_EQ(CodePointAt(one), c);
    ASSERT_EQ(NextUtf8(one).length_bytes, one.size());
    ASSERT_TRUE(IsValidUtf8(one));
    ASSERT_FALSE(IsValidUtf8(std::string_view(one).substr(0, one.size() - 1)) && c >= 0x80);
    all += one;
  }
  EXPECT_EQ(Repaired(all), all);
}

}  // namespace
}  // namespace hearth
