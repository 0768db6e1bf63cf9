// The progress line: when it appears, what it says, when it goes away. Time is a FakeClock.
#include "tools/hearth/progress.h"

#include <cstdint>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/clock.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using ::testing::EndsWith;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr const char* kErase = "\r\x1b[K";

class ProgressTest : public testing::Test {
 protected:
  CommandIo Io(bool terminal) {
    return {.results = results_, .talk = talk_, .clock = clock_, .talk_is_terminal = terminal};
  }
  std::string TakeTalk() {
    std::string text = talk_.str();
    talk_.str("");
    return text;
  }
  FakeClock clock_;
  std::ostringstream results_;
  std::ostringstream talk_;
};

TEST_F(ProgressTest, ShortWorkSaysNothing) {
  for (const bool terminal : {false, true}) {
    Progress progress(Io(terminal), {.label = "packing", .total = 10});
    clock_.Advance(2 * kSecondNs - 1);
    progress.Update(5);
    progress.Update(10);
  }
  EXPECT_EQ(TakeTalk(), "");
}

TEST_F(ProgressTest, TerminalShowsRateAndTimeLeftAndCleansUp) {
  {
    Progress progress(Io(true), {.label = "packing", .total = 3_GiB});
    clock_.Advance(2 * kSecondNs);
    progress.Update(1_GiB);
    EXPECT_EQ(TakeTalk(),
              std::string(kErase) + "packing: 1.00 GiB of 3.00 GiB (33%), 512 MiB/s, 5 s left");
  }
  EXPECT_EQ(TakeTalk(), kErase);
}

TEST_F(ProgressTest, CasesHaveNoRateAndALineHidesForResults) {
  Progress progress(Io(true), {.label = "measuring", .unit = ProgressUnit::kCases, .total = 40});
  clock_.Advance(2 * kSecondNs);
  progress.Update(10);
  EXPECT_EQ(TakeTalk(), std::string(kErase) + "measuring: 10 of 40 (25%) cases, 7 s left");
  progress.Hide();
  EXPECT_EQ(TakeTalk(), kErase);
  progress.Hide();
  EXPECT_EQ(TakeTalk(), "");
  clock_.Advance(kSecondNs);
  progress.Update(20);
  EXPECT_EQ(TakeTalk(), std::string(kErase) + "measuring: 20 of 40 (50%) cases, 4 s left");
}

TEST_F(ProgressTest, TerminalIsRedrawnTenTimesASecondAtMost) {
  Progress progress(Io(true), {.label = "x", .total = 1000});
  clock_.Advance(2 * kSecondNs);
  uint32_t lines = 0;
  for (uint64_t step = 0; step < 1000; ++step) {  // one second in steps of 1 ms
    progress.Update(step);
    lines += TakeTalk().empty() ? 0 : 1;
    clock_.Advance(kSecondNs / 1000);
  }
  EXPECT_EQ(lines, 10u);
}

TEST_F(ProgressTest, ElsewhereAPlainLineEveryTenSeconds) {
  Progress progress(Io(false), {.label = "reading", .unit = ProgressUnit::kTokens, .total = 4000});
  uint32_t lines = 0;
  for (int second = 1; second <= 35; ++second) {
    clock_.Advance(kSecondNs);
    progress.Update(100 * static_cast<uint64_t>(second));
    const std::string text = TakeTalk();
    if (text.empty()) continue;
    ++lines;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_THAT(text, EndsWith(" left\n"));
    if (second == 10) {
      EXPECT_EQ(text, "reading: 1000 of 4000 (25%) tokens, 100/s, 31 s left\n");
    }
  }
  EXPECT_EQ(lines, 3u);
}

TEST_F(ProgressTest, UnknownTotalHasNoPercentageAndNoTimeLeft) {
  Progress progress(Io(true), {.label = "packing"});
  clock_.Advance(4 * kSecondNs);
  progress.Update(2_MiB);
  EXPECT_EQ(TakeTalk(), std::string(kErase) + "packing: 2.00 MiB, 512 KiB/s");
}

TEST_F(ProgressTest, NothingDoneYetIsNoDivisionByZero) {
  Progress progress(Io(true), {.label = "packing", .total = 10});
  clock_.Advance(4 * kSecondNs);
  progress.Update(0);
  EXPECT_EQ(TakeTalk(), std::string(kErase) + "packing: 0 B of 10 B (0%), 0 B/s");
  clock_.Advance(kSecondNs);
  progress.Update(20);
  EXPECT_EQ(TakeTalk(), std::string(kErase) + "packing: 20 B of 10 B (100%), 4 B/s");
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(59), "59 s");
  EXPECT_EQ(FormatSeconds(185), "3 min 05 s");
  EXPECT_EQ(FormatSeconds(7800), "2 h 10 min");
}

}  // namespace
}  // namespace hearth::cli
