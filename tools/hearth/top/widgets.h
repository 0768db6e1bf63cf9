// The parts that pictures of numbers are made of: bars whose parts add up to their whole, gauges,
// lines of the past and strips of heat.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tools/hearth/top/cell_grid.h"

namespace hearth::cli {

// What the terminal can show.
struct Looks {
  bool ascii = false;      // no blocks
  bool colours256 = true;  // heat is a shade; else the height of a block
};

// Fills the first row of `area` with the four services' parts; dotted where there is nothing.
void DrawShares(const Area& area, std::span<const uint64_t> by_service, const Looks& looks);

// How much of `whole` is `part`, over the first row; `mark`, of `whole` too, is drawn into it.
void DrawGauge(const Area& area, double part, double whole, std::optional<double> mark, Ink ink,
               const Looks& looks);

// The last values, newest at the right edge, over all rows of `area`; negative: none there. The
// highest fills it.
void DrawHistory(const Area& area, std::span<const float> values, Ink ink, const Looks& looks);

// One cell for each of `values`, 0 to 1, or for a few neighbours' mean where there are more than
// columns; `per_value` columns each. Negative: nothing known.
void DrawHeat(const Area& area, std::span<const float> values, uint32_t per_value, Ink ink,
              const Looks& looks);

// "1.24 GB/s"; "-" for none.
std::string RateText(std::optional<double> bytes_per_sec);
// "42.3", "0.84", "1,234": three digits at least; "-" for none.
std::string NumberText(std::optional<double> value);
// "840 ms", "1.24 s", "12 us"; "-" for none.
std::string TimeText(std::optional<double> seconds);
// "61.2%"; "-" for none.
std::string PercentText(std::optional<double> share);
// "2d 03h", "1h 02m", "3m 04s", "5s".
std::string AgeText(int64_t ns);
// "1,234,567"
std::string CountText(uint64_t count);

}  // namespace hearth::cli
