#include "tools/hearth/top/widgets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/plan/ledger_text.h"

namespace hearth::cli {
namespace {

constexpr std::array<char32_t, 4> kServiceBlocks = {U'█', U'▓', U'▒', U'░'};
constexpr std::array<char32_t, 4> kServiceLetters = {U'#', U'=', U'+', U'.'};
constexpr std::array<char32_t, 9> kHeights = {U' ', U'▁', U'▂', U'▃', U'▄', U'▅', U'▆', U'▇', U'█'};
constexpr std::array<char32_t, 9> kAsciiHeights = {U' ', U'.', U'.', U'-', U'-',
                                                   U'=', U'=', U'#', U'#'};
constexpr std::array<char32_t, 8> kWidths = {U' ', U'▏', U'▎', U'▍', U'▌', U'▋', U'▊', U'▉'};

char32_t HeightGlyph(uint32_t eighths, const Looks& looks) {
  return looks.ascii ? kAsciiHeights[eighths] : kHeights[eighths];
}

// From 0 to 8; what is above 0 shows.
uint32_t EighthsOf(double share) {
  if (!(share > 0)) return 0;
  return std::clamp<uint32_t>(static_cast<uint32_t>(std::lround(share * 8)), 1, 8);
}

void DrawShade(const Area& area, uint32_t column, float value, Ink ink, const Looks& looks) {
  if (value < 0) return area.Put(0, column, looks.ascii ? U' ' : U'·', {Ink::kDim});
  const uint32_t eighths = EighthsOf(value);
  if (looks.ascii || !looks.colours256) {
    area.Put(0, column, eighths == 0 ? (looks.ascii ? U'_' : U'▁') : HeightGlyph(eighths, looks),
             {eighths == 0 ? Ink::kDim : ink});
  } else {
    // By the root: a few experts of a hundred from the drive are worth seeing.
    const uint32_t shade = eighths == 0 ? 1 : std::max(EighthsOf(std::sqrt(value)), 2U);
    area.Put(0, column, U'█', {ink, static_cast<uint8_t>(shade)});
  }
}

}  // namespace

void DrawShares(const Area& area, std::span<const uint64_t> by_service, const Looks& looks) {
  const std::vector<uint32_t> shares = Portions(by_service, area.columns());
  uint32_t column = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    const auto ink = static_cast<Ink>(static_cast<size_t>(Ink::kVram) + s);
    const char32_t glyph = looks.ascii ? kServiceLetters[s] : kServiceBlocks[s];
    for (uint32_t i = 0; i < shares[s]; ++i) area.Put(0, column++, glyph, {ink});
  }
  while (column < area.columns()) {
    area.Put(0, column++, looks.ascii ? U'-' : U'·', {Ink::kDim});
  }
}

void DrawGauge(const Area& area, double part, double whole, std::optional<double> mark, Ink ink,
               const Looks& looks) {
  const uint32_t columns = area.columns();
  const double share = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
  const double filled = share * columns;
  for (uint32_t c = 0; c < columns; ++c) {
    const double here = std::clamp(filled - c, 0.0, 1.0);
    const auto eighths = static_cast<uint32_t>(here * 8);
    if (eighths >= 8) {
      area.Put(0, c, looks.ascii ? U'#' : U'█', {ink});
    } else if (eighths > 0 && !looks.ascii) {
      area.Put(0, c, kWidths[eighths], {ink});
    } else {
      area.Put(0, c, looks.ascii ? U'-' : U'·', {Ink::kDim});
    }
  }
  if (mark && whole > 0 && columns > 0) {
    const double at = std::clamp(*mark / whole, 0.0, 1.0) * columns;
    area.Put(0, std::min(static_cast<uint32_t>(at), columns - 1), looks.ascii ? U'|' : U'┃',
             {Ink::kStrong});
  }
}

void DrawHistory(const Area& area, std::span<const float> values, Ink ink, const Looks& looks) {
  const size_t shown = std::min<size_t>(values.size(), area.columns());
  const std::span<const float> last = values.last(shown);
  float highest = 0;
  for (const float value : last) highest = std::max(highest, value);
  const auto first = static_cast<uint32_t>(area.columns() - shown);
  const uint32_t levels = area.rows() * 8;
  for (uint32_t i = 0; i < shown; ++i) {
    if (last[i] < 0 || !(highest > 0)) continue;
    auto level = static_cast<uint32_t>(std::lround(last[i] / highest * static_cast<float>(levels)));
    if (last[i] > 0) level = std::max(level, 1U);
    for (uint32_t r = 0; r < area.rows(); ++r) {
      const uint32_t below = (area.rows() - 1 - r) * 8;
      if (level <= below) continue;
      area.Put(r, first + i, HeightGlyph(std::min(level - below, 8U), looks), {ink});
    }
  }
}

void DrawHeat(const Area& area, std::span<const float> values, uint32_t per_value, Ink ink,
              const Looks& looks) {
  if (area.columns() == 0 || values.empty()) return;
  if (values.size() * per_value <= area.columns()) {
    for (uint32_t i = 0; i < values.size() * per_value; ++i) {
      DrawShade(area, i, values[i / per_value], ink, looks);
    }
    return;
  }
  for (uint32_t c = 0; c < std::min<size_t>(area.columns(), values.size()); ++c) {
    const size_t cells = std::min<size_t>(area.columns(), values.size());
    const size_t begin = c * values.size() / cells;
    const size_t end = std::max((c + 1) * values.size() / cells, begin + 1);
    float sum = 0;
    uint32_t known = 0;
    for (size_t i = begin; i < end; ++i) {
      if (values[i] < 0) continue;
      sum += values[i];
      ++known;
    }
    DrawShade(area, c, known == 0 ? -1 : sum / static_cast<float>(known), ink, looks);
  }
}

std::string NumberText(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return "-";
  if (*value >= 999.5) return CountText(static_cast<uint64_t>(std::min(*value + 0.5, 1e18)));
  return absl::StrFormat("%.*f", *value < 9.995 ? 2 : *value < 99.95 ? 1 : 0, *value);
}

std::string RateText(std::optional<double> bytes_per_sec) {
  if (!bytes_per_sec || !std::isfinite(*bytes_per_sec)) return "-";
  static constexpr std::array<std::string_view, 5> kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = *bytes_per_sec;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return absl::StrCat(unit == 0 ? absl::StrFormat("%.0f", value) : NumberText(value), " ",
                      std::string(kUnits[unit]));
}

std::string TimeText(std::optional<double> seconds) {
  if (!seconds || !std::isfinite(*seconds)) return "-";
  if (*seconds >= 0.9995) return NumberText(*seconds) + " s";
  if (*seconds >= 0.9995e-3) return NumberText(*seconds * 1e3) + " ms";
  return absl::StrFormat("%.0f us", *seconds * 1e6);
}

std::string PercentText(std::optional<double> share) {
  if (!share || !std::isfinite(*share)) return "-";
  return absl::StrFormat("%.1f%%", *share * 100);
}

std::string AgeText(int64_t ns) {
  const int64_t seconds = std::max<int64_t>(ns, 0) / 1'000'000'000;
  if (seconds < 60) return absl::StrFormat("%ds", seconds);
  if (seconds < 3600) return absl::StrFormat("%dm %02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh %02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd %02dh", seconds / 86400, seconds / 3600 % 24);
}

std::string CountText(uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace hearth::cli
