// Goal: the shortcuts of NormalizeNfc change nothing. Method: the table of plain characters against
// utf8proc's own data, and random strings against utf8proc over the whole string. Equality with the
// reference implementation is in golden_test.cc and tests/oracle.
#include "runtime/model/tokenizer/nfc.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <utf8proc.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"
#include "runtime/model/tokenizer/utf8.h"

namespace hearth {
namespace {

std::string WholeNfc(const std::string& text) {
  utf8proc_uint8_t* const mapped =
      utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const std::string out = reinterpret_cast<const char*>(mapped);
  std::free(mapped);
  return out;
}

std::string Utf8Of(const std::vector<char32_t>& code_points) {
  std::string text;
  for (const char32_t c : code_points) AppendUtf8(c, text);
  return text;
}

bool IsScalar(char32_t c) { return c < 0xD800 || (c >= 0xE000 && c < 0x110000); }

TEST(Nfc, PlainCharactersAreUnchangedStarters) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (!IsScalar(c) || !IsPlainForNfc(c)) continue;
    const std::string text = Utf8Of({c});
    ASSERT_EQ(WholeNfc(text), text) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class, 0)
        << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Nfc, PlainCharactersNeverComposeWithWhatPrecedes) {
  int pair_count = 0;
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (!IsScalar(c)) continue;
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c), parts, 8,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    ASSERT_GE(count, 1);
    for (utf8proc_ssize_t i = 1; i < count; ++i) {
      ++pair_count;
      ASSERT_FALSE(IsPlainForNfc(static_cast<char32_t>(parts[i])))
          << std::hex << static_cast<uint32_t>(c);
    }
  }
  EXPECT_GT(pair_count, 10000);
}

TEST(Nfc, SegmentsEqualTheWholeText) {
  const std::vector<char32_t> pool = {
      'a',    'e',    0xE9,   0x3B1,   0x439,   0x300,  0x301,  0x323,  0x327,
      0x338,  0x345,  0x653,  0x9BE,   0x9C7,   0xBC6,  0xBBE,  0x1100, 0x1161,
      0x11A8, 0xAC00, 0xAC01, 0x304B,  0x3099,  0x2126, 0x2ADC, 0xF900, 0x958,
      0x915,  0x93C,  0x4F60, 0x1D15E, 0x1F600, 0x220B, 0x344,  0x5D0,  0x5B7};
  Prng prng(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<char32_t> code_points(prng.Below(12));
    for (char32_t& c : code_points) c = pool[prng.Below(pool.size())];
    const std::string text = Utf8Of(code_points);
    ASSERT_EQ(NormalizeNfc(text), WholeNfc(text)) << "round " << round;
    ASSERT_EQ(NormalizeNfc(NormalizeNfc(text)), NormalizeNfc(text)) << "round " << round;
  }
}

// U+10F48 has combining class 230 since Unicode 11.0: the reference does not move it.
TEST(Nfc, MarksEncodedAfterUnicode9StayWhereTheyAre) {
  const std::string text = "q\u0301\U00010f48\u0323e\u0301";
  EXPECT_EQ(NormalizeNfc(text), "q\u0301\U00010f48\u0323\u00e9");
  EXPECT_NE(WholeNfc(text), NormalizeNfc(text));
  EXPECT_EQ(NormalizeNfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

}  // namespace
}  // namespace hearth
