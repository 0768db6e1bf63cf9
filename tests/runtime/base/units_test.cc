// Sizes as people write them: what is accepted, that nothing else is, and how sizes are printed.
#include "runtime/base/units.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

struct Accepted {
  std::string_view text;
  uint64_t bytes;
};

TEST(ParseBytes, AcceptsANumberWithAUnit) {
  const Accepted cases[] = {
      {"24GiB", 24_GiB},
      {"1.5 GiB", 1536_MiB},
      {"1.5GiB", 1536_MiB},
      {"512MiB", 512_MiB},
      {"4KiB", 4096},
      {"100B", 100},
      {"0B", 0},
      {"0GiB", 0},
      {"1TiB", 1024_GiB},
      {"007MiB", 7_MiB},
      {".5KiB", 512},
      {"3   KiB", 3072},
      {"63.3 GiB", 67967857459},                // 67,967,857,459.2 rounded down
      {"9007199254740993B", 9007199254740993},  // 2^53 + 1: no double holds it
      {"9223372036854775806B", 9223372036854775806},
      {"8388607TiB", uint64_t{8388607} << 40},
  };
  for (const Accepted& c : cases) {
    const absl::StatusOr<uint64_t> got = ParseBytes(c.text);
    ASSERT_TRUE(got.ok()) << c.text << ": " << got.status();
    EXPECT_EQ(*got, c.bytes) << c.text;
  }
}

TEST(ParseBytes, RefusesEverythingElseWithTheAcceptedForms) {
  const std::string_view cases[] = {"",
                                    " ",
                                    "8",
                                    "0",
                                    "-1",
                                    "-1GiB",
                                    "-0B",
                                    "+1GiB",
                                    "8GB",
                                    "8G",
                                    "8g",
                                    "8gib",
                                    "8GIB",
                                    "8e9",
                                    "8e9B",
                                    "1e3KiB",
                                    "abc",
                                    "GiB",
                                    "B",
                                    " 8GiB",
                                    "8GiB ",
                                    "8 GiB x",
                                    "8\tGiB",
                                    "0x10MiB",
                                    "1_000B",
                                    "1,5GiB",
                                    "1.2.3MiB",
                                    ".GiB",
                                    "nanB",
                                    "nan GiB",
                                    "infGiB",
                                    "inf B",
                                    "0.5B",
                                    "1.0B",
                                    "8GiB8GiB",
                                    "8 B iB",
                                    "8PiB",
                                    "8bytes",
                                    "８GiB",
                                    "∞GiB",
                                    "9223372036854775808B",
                                    "18446744073709551616B",
                                    "8388608TiB",
                                    "99999999999999999999.5TiB",
                                    "1e999GiB",
                                    "--5B"};
  for (const std::string_view text : cases) {
    const absl::StatusOr<uint64_t> got = ParseBytes(text);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << "'" << text << "'";
    if (got.ok()) continue;
    EXPECT_THAT(std::string(got.status().message()), ::testing::HasSubstr(std::string(text)));
    EXPECT_THAT(std::string(got.status().message()), ::testing::HasSubstr("24GiB"));
  }
}

TEST(ParseBytes, EmbeddedZeroByteIsRefused) {
  EXPECT_FALSE(ParseBytes(std::string_view("8GiB\0", 5)).ok());
  EXPECT_FALSE(ParseBytes(std::string_view("8\0GiB", 5)).ok());
}

TEST(FormatBytes, ThreeSignificantDigitsAndTheLargestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1), "1 B");
  EXPECT_EQ(FormatBytes(100), "100 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(512_MiB), "512 MiB");
  EXPECT_EQ(FormatBytes(67967857459), "63.3 GiB");
  EXPECT_EQ(FormatBytes(10_MiB - 1), "10.0 MiB");
  EXPECT_EQ(FormatBytes(100_MiB - 1), "100 MiB");
  EXPECT_EQ(FormatBytes(1_GiB - 1), "1024 MiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16777216 TiB");
}

TEST(FormatBytes, WhatItPrintsIsParsedBackWithinHalfAPercent) {
  Prng prng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bytes = prng.Next() >> (1 + prng.Below(62));
    const absl::StatusOr<uint64_t> back = ParseBytes(FormatBytes(bytes));
    ASSERT_TRUE(back.ok()) << FormatBytes(bytes);
    EXPECT_NEAR(static_cast<double>(*back), static_cast<double>(bytes), 0.005 * bytes + 1);
  }
}

TEST(AlignUp, IsTheNextMultiple) {
  EXPECT_EQ(AlignUp(0, 64), 0u);
  EXPECT_EQ(AlignUp(1, 64), 64u);
  EXPECT_EQ(AlignUp(64, 64), 64u);
  EXPECT_EQ(AlignUp(65, 64), 128u);
  EXPECT_EQ(AlignUp(7, 3), 9u);  // not only powers of two
}

}  // namespace
}  // namespace hearth
