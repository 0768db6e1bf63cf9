#include "tools/hearth/line_chart.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "runtime/base/status.h"

namespace hearth::cli {
namespace {

// Units of the SVG's own coordinates; the page scales them.
constexpr double kWidth = 520;
constexpr double kHeight = 340;
constexpr double kLeft = 56;
constexpr double kRight = 16;
constexpr double kTop = 14;
constexpr double kBottom = 50;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
constexpr double kLegendLine = 16;
constexpr double kLegendInset = 12;
constexpr double kCharWidth = 6.4;  // of the legend's font, on average
constexpr uint32_t kColours = 8;
constexpr const char* kFaint = "line faint";

double XOf(const ChartAxis& axis, double value) {
  return kLeft + kPlotWidth * (value - axis.minimum) / (axis.maximum - axis.minimum);
}
double YOf(const ChartAxis& axis, double value) {
  return kTop + kPlotHeight * (1 - (value - axis.minimum) / (axis.maximum - axis.minimum));
}

std::string Tick(const ChartAxis& axis, double value) {
  return axis.format == TickFormat::kPercent ? absl::StrFormat("%.0f%%", 100 * value)
                                             : absl::StrFormat("%.6g", value);
}

std::string ClassOf(const ChartLine& line) {
  if (line.reference) return "line ref";
  return absl::StrFormat("line s%d%s", line.colour % kColours,
                         line.colour >= kColours ? " dashed" : "");
}

std::string Axes(const LineChart& chart) {
  std::string svg = "<g class=\"axis\">";
  for (const double tick : chart.x.ticks) {
    const double x = XOf(chart.x, tick);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                          x, x, kTop, kTop + kPlotHeight, x, kTop + kPlotHeight + 16,
                          Tick(chart.x, tick));
  }
  for (const double tick : chart.y.ticks) {
    const double y = YOf(chart.y, tick);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                          kLeft, kLeft + kPlotWidth, y, y, kLeft - 6, y + 4, Tick(chart.y, tick));
  }
  absl::StrAppendFormat(&svg,
                        "<text class=\"title\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s"
                        "</text><text class=\"title\" transform=\"translate(14 %.1f) rotate(-90)\" "
                        "text-anchor=\"middle\">%s</text></g>",
                        kLeft + kPlotWidth / 2, kHeight - 10, EscapeMarkup(chart.x.title),
                        kTop + kPlotHeight / 2, EscapeMarkup(chart.y.title));
  return svg;
}

std::string OneLine(const LineChart& chart, const ChartLine& line, std::string_view css_class) {
  std::string svg = absl::StrFormat("<g class=\"%s\"><polyline points=\"", ToAbsl(css_class));
  for (const ChartPoint& p : line.points) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", XOf(chart.x, p.x), YOf(chart.y, p.y));
  }
  absl::StrAppendFormat(&svg, "\"><title>%s</title></polyline>", EscapeMarkup(line.label));
  for (const ChartPoint& p : line.points) {
    if (p.tip.empty()) continue;
    absl::StrAppendFormat(&svg,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\"><title>%s</title></circle>",
                          XOf(chart.x, p.x), YOf(chart.y, p.y), EscapeMarkup(p.tip));
  }
  return svg + "</g>";
}

std::string Lines(const LineChart& chart) {
  std::string svg;
  for (const ChartLine& line : chart.backdrop) svg += OneLine(chart, line, kFaint);
  // The first of the legend on top.
  for (size_t i = chart.lines.size(); i-- > 0;) {
    svg += OneLine(chart, chart.lines[i], ClassOf(chart.lines[i]));
  }
  return svg;
}

// In the corner that the lines leave free.
std::string Legend(const LineChart& chart) {
  struct Entry {
    std::string css_class;
    std::string label;
  };
  std::vector<Entry> entries;
  for (const ChartLine& line : chart.lines) entries.push_back({ClassOf(line), line.label});
  if (!chart.backdrop.empty()) entries.push_back({kFaint, chart.backdrop_label});
  size_t longest = 0;
  for (const Entry& entry : entries) longest = std::max(longest, entry.label.size());
  const double width = 34 + kCharWidth * static_cast<double>(longest);
  const double height = kLegendLine * static_cast<double>(entries.size()) + 8;
  const bool lower_right = chart.legend == LineChart::Legend::kLowerRight;
  const double left =
      lower_right ? kLeft + kPlotWidth - kLegendInset - width : kLeft + kLegendInset;
  const double top = lower_right ? kTop + kPlotHeight - kLegendInset - height : kTop + kLegendInset;
  std::string svg = absl::StrFormat(
      "<g class=\"legend\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
      "rx=\"3\"/>",
      left, top, width, height);
  for (size_t i = 0; i < entries.size(); ++i) {
    const double y = top + 12 + kLegendLine * static_cast<double>(i);
    absl::StrAppendFormat(&svg,
                          "<g class=\"%s\"><polyline points=\"%.1f,%.1f %.1f,%.1f\"/></g>"
                          "<text x=\"%.1f\" y=\"%.1f\">%s</text>",
                          entries[i].css_class, left + 6, y, left + 26, y, left + 32, y + 4,
                          EscapeMarkup(entries[i].label));
  }
  return svg + "</g>";
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  return absl::StrReplaceAll(
      ToAbsl(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string LineChartSvg(const LineChart& chart) {
  return absl::StrCat(absl::StrFormat("<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                                      "aria-label=\"%s\">",
                                      kWidth, kHeight, EscapeMarkup(chart.title)),
                      Axes(chart), Lines(chart), Legend(chart), "</svg>\n");
}

}  // namespace hearth::cli
