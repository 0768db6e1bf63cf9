// Line charts as inline SVG: axes with units, a legend in the order of the lines with their values,
// a tooltip at every point. Colours are the CSS classes s0 to s7 of the page around it, so that
// light and dark pages can differ; after eight lines the same colours come dashed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::cli {

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::string tip{};  // of a point that is marked; empty: only the line passes through
};

struct ChartLine {
  std::string label;  // in the legend
  std::vector<ChartPoint> points;
  uint32_t colour = 0;
  bool reference = false;  // grey and dashed: what would be, not what was measured
};

enum class TickFormat { kNumber, kPercent };

struct ChartAxis {
  std::string title;  // with the unit
  double minimum = 0;
  double maximum = 1;
  std::vector<double> ticks;
  TickFormat format = TickFormat::kNumber;
};

struct LineChart {
  std::string title;
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartLine> lines;  // in the order of the legend
  // Thin grey lines behind them, one line of the legend for all; each has its label as a tooltip.
  std::vector<ChartLine> backdrop;
  std::string backdrop_label;
  enum class Legend { kLowerRight, kUpperLeft } legend = Legend::kLowerRight;
};

std::string LineChartSvg(const LineChart& chart);

// Text as it stands in HTML and SVG, in elements and in attributes.
std::string EscapeMarkup(std::string_view text);

}  // namespace hearth::cli
