#include "tools/hearth/top/top_view.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "tools/hearth/top/panels.h"

namespace hearth::cli {
namespace {

constexpr uint32_t kWideRows = 50;
constexpr uint32_t kWideColumns = 150;

void DrawFooter(const TopView& view, const Area& area) {
  if (view.trouble.empty()) {
    area.Text(0, 0, view.help, Ink::kDim);
    if (view.snapshot && !view.snapshot->facts.notes.empty()) {
      const auto length = static_cast<uint32_t>(GlyphsOf(view.help).size());
      area.Text(0, length == 0 ? 0 : length + 3, view.snapshot->facts.notes.front(), Ink::kDim);
    }
    return;
  }
  const uint32_t at = area.Text(0, 0, "reconnecting", Ink::kBad);
  area.Text(0, at, absl::StrCat(" for ", AgeText(view.trouble_ns), ": ", view.trouble), Ink::kBad);
}

void DrawNothing(const TopView& view, const Area& area) {
  const char* what = view.trouble.empty() ? "waiting for the first snapshot" : "no snapshot yet";
  area.Text(2, 0, what, Ink::kStrong);
  area.Text(3, 0, absl::StrCat("from ", view.source), Ink::kDim);
}

// 24 rows of 80 columns and whatever is more.
void DrawCompact(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const uint32_t columns = area.columns();
  const uint32_t left = std::max(columns * 9 / 16, 1U);
  const uint32_t right = columns > left + 2 ? columns - left - 2 : 0;
  DrawRequestCounts(s, area.Part(1, 0, 1, columns));
  DrawSpeed(s, looks, area.Part(2, 0, 2, columns));
  DrawTiers(s, looks, area.Part(5, 0, 4, columns));
  DrawLayers(s, looks, area.Part(9, 0, 3, columns));
  DrawChannels(s, looks, area.Part(12, 0, 5, left));
  DrawMemory(s, looks, area.Part(17, 0, 5, left));
  DrawDrafts(s, looks, area.Part(12, left + 2, 5, right));
  const uint32_t rest = area.rows() > 17 ? area.rows() - 17 : 0;
  const uint32_t half = std::max(rest / 2, 1U);
  DrawInFlight(s, area.Part(17, left + 2, half, right));
  DrawSwaps(s, looks, area.Part(17 + half, left + 2, rest - std::min(rest, half), right));
}

void DrawWide(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const uint32_t columns = area.columns();
  const uint32_t third = (columns - 4) / 3;
  const uint32_t second = third + 2;
  const uint32_t last = 2 * third + 4;
  DrawRequestCounts(s, area.Part(2, 0, 1, columns));
  DrawSpeed(s, looks, area.Part(4, 0, 10, columns));
  DrawTiers(s, looks, area.Part(15, 0, 4, columns));
  DrawLayers(s, looks, area.Part(20, 0, 5, columns));
  DrawChannels(s, looks, area.Part(26, 0, 5, 2 * third + 2));
  DrawDrafts(s, looks, area.Part(26, last, 9, third));
  DrawMemory(s, looks, area.Part(32, 0, 5, 2 * third + 2));
  const uint32_t rows = area.rows() > 38 ? area.rows() - 38 : 0;
  const uint32_t upper = rows * 3 / 5;
  DrawInFlight(s, area.Part(38, 0, upper, third));
  DrawPlan(s, area.Part(38 + upper + 1, 0, rows, third));
  DrawTimes(s, area.Part(38, second, 7, third));
  DrawWindows(s, looks, area.Part(46, second, rows > 8 ? rows - 8 : 0, third));
  constexpr uint32_t kCounterRows = 13;
  const uint32_t swaps = rows > kCounterRows ? rows - kCounterRows : 0;
  DrawSwaps(s, looks, area.Part(38, last, swaps, third));
  DrawCounters(s, area.Part(38 + swaps, last, rows, third));
}

}  // namespace

CellGrid DrawTop(const TopView& view, uint32_t rows, uint32_t columns) {
  CellGrid grid(rows, columns);
  const Area all(grid);
  DrawHeading(view, all.Part(0, 0, 1, columns));
  // The last row is the footer's, where there is room for more than one.
  const Area body = all.Part(0, 0, rows > 1 ? rows - 1 : rows, columns);
  if (!view.snapshot) {
    DrawNothing(view, body);
  } else if (rows >= kWideRows && columns >= kWideColumns) {
    DrawWide(*view.snapshot, view.looks, body);
  } else {
    DrawCompact(*view.snapshot, view.looks, body);
  }
  if (rows > 1) DrawFooter(view, all.Part(rows - 1, 0, 1, columns));
  return grid;
}

}  // namespace hearth::cli
