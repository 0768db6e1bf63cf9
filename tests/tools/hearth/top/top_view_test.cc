// The dashboard as pictures: whole frames at the sizes that it is made for, compared with what a
// person has looked at, and rules that hold at every size.
#include "tools/hearth/top/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/file.h"
#include "runtime/serve/telemetry/telemetry_json.h"
#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopView ViewOf(TelemetrySnapshot snapshot) {
  return {.snapshot = std::move(snapshot), .source = "http://127.0.0.1:8080"};
}

// Characters, and below them the style of each: a letter for its ink, a digit for its shade.
std::string FrameText(const CellGrid& grid) {
  static constexpr std::string_view kInks = " .bTvpcsGB";
  std::string text = PlainText(grid) + "---\n";
  for (uint32_t r = 0; r < grid.rows(); ++r) {
    std::string line;
    for (uint32_t c = 0; c < grid.columns(); ++c) {
      const Cell& cell = grid.at(r, c);
      const char ink = kInks[static_cast<size_t>(cell.style.ink)];
      line += cell.style.shade == 0 ? ink : static_cast<char>('0' + cell.style.shade);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// Golden frames are looked at by people: the one found is written beside the test for that.
void ExpectGolden(const CellGrid& grid, const std::string& name) {
  const auto golden = ReadFile(std::string(HEARTH_SOURCE_DIR "/tests/golden/top/") + name, 1 << 20);
  const std::string found = FrameText(grid);
  if (golden.ok() && *golden == found) return;
  std::ofstream("found_" + name) << found;
  ADD_FAILURE() << name << " differs; the frame found is in found_" << name << "\n"
                << PlainText(grid);
}

TEST(TopView, GoldenFrames) {
  ExpectGolden(DrawTop(ViewOf(BusySnapshot()), 24, 80), "busy_80x24.txt");
  ExpectGolden(DrawTop(ViewOf(BusySnapshot()), 60, 200), "busy_200x60.txt");
  ExpectGolden(DrawTop(ViewOf(EmptySnapshot()), 24, 80), "empty_80x24.txt");
  TopView ascii = ViewOf(BusySnapshot());
  ascii.looks = {.ascii = true, .colours256 = false};
  ascii.trouble = "http://127.0.0.1:8080: Connection";
  ascii.trouble_ns = 12'000'000'000;
  ascii.restarts = 1;
  ExpectGolden(DrawTop(ascii, 24, 80), "ascii_trouble_80x24.txt");
}

// What the terminal's tests replay, and what readers of schema version 1 rely on.
TEST(TopView, TheGoldenRecordingIsTheBusyServers) {
  const auto golden = ReadFile(HEARTH_SOURCE_DIR "/tests/golden/top/busy.json", 1 << 20);
  const std::string found = TelemetryJson(BusySnapshot()) + "\n";
  if (golden.ok() && *golden == found) return;
  std::ofstream("found_busy.json") << found;
  ADD_FAILURE() << "the JSON of the busy server is another one; see found_busy.json";
}

TEST(TopView, TheSnapshotThatCameAsJsonGivesTheSamePicture) {
  const auto back = ParseTelemetry(TelemetryJson(BusySnapshot()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(FrameText(DrawTop(ViewOf(*back), 60, 200)),
            FrameText(DrawTop(ViewOf(BusySnapshot()), 60, 200)));
}

TEST(TopView, AnySizeIsDrawn) {
  for (const TelemetrySnapshot& snapshot :
       {BusySnapshot(), EmptySnapshot(), FullSnapshot(), TelemetrySnapshot()}) {
    TopView view = ViewOf(snapshot);
    for (uint32_t rows = 0; rows <= 62; ++rows) {
      for (const uint32_t columns : {0, 1, 2, 5, 11, 24, 40, 79, 80, 119, 150, 203}) {
        const CellGrid grid = DrawTop(view, rows, columns);
        ASSERT_EQ(grid.rows(), rows);
        ASSERT_EQ(grid.columns(), columns);
      }
    }
  }
}

TEST(TopView, BeforeTheFirstSnapshotItSaysWhatItWaitsFor) {
  TopView view = {.source = "unix:/run/hearth.sock"};
  EXPECT_THAT(PlainText(DrawTop(view, 24, 80)), HasSubstr("waiting for the first snapshot"));
  view.trouble = "Connection refused";
  view.trouble_ns = 3'000'000'000;
  const std::string text = PlainText(DrawTop(view, 24, 80));
  EXPECT_THAT(text, HasSubstr("from unix:/run/hearth.sock"));
  EXPECT_THAT(text, HasSubstr("reconnecting for 3s: Connection refused"));
}

TEST(TopView, ARestartShows) {
  TopView view = ViewOf(BusySnapshot());
  EXPECT_THAT(PlainText(DrawTop(view, 24, 80)), Not(HasSubstr("restarted")));
  view.restarts = 2;
  EXPECT_THAT(PlainText(DrawTop(view, 24, 80)), HasSubstr("restarted 2x"));
}

TEST(TopView, WithoutTrafficTheTiersAreSinceTheStart) {
  TelemetrySnapshot s = HandCountedSnapshot();
  const std::string text = PlainText(DrawTop(ViewOf(s), 24, 80));
  EXPECT_THAT(text, HasSubstr("since start"));
  EXPECT_THAT(text, HasSubstr("vram 37.5%"));
  EXPECT_THAT(text, HasSubstr("cpu 25.0%"));
  EXPECT_THAT(text, HasSubstr("ssd 37.5%"));
}

TEST(TopView, NothingThatAServerSaysReachesTheTerminalAsControl) {
  TelemetrySnapshot s = BusySnapshot();
  s.facts.model = "\x1b]0;owned\x07";
  s.facts.notes = {
      "\x9b"
      "2J\r\n"};
  TopView view = ViewOf(s);
  view.trouble = "\x1b[2J";
  const CellGrid grid = DrawTop(view, 24, 80);
  for (uint32_t r = 0; r < grid.rows(); ++r) {
    for (uint32_t c = 0; c < grid.columns(); ++c) {
      EXPECT_GE(grid.at(r, c).glyph, U' ');
      EXPECT_FALSE(grid.at(r, c).glyph >= 0x7F && grid.at(r, c).glyph < 0xA0);
    }
  }
}

TEST(TopView, NoNumberIsEverNotANumber) {
  for (const TelemetrySnapshot& snapshot : {EmptySnapshot(), TelemetrySnapshot()}) {
    for (const uint32_t columns : {80, 200}) {
      const std::string text = PlainText(DrawTop(ViewOf(snapshot), 60, columns));
      EXPECT_THAT(text, Not(HasSubstr("nan")));
      EXPECT_THAT(text, Not(HasSubstr("inf")));
    }
  }
}

}  // namespace
}  // namespace hearth::cli
