#include "tools/hearth/profile_page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "cache/policy/routing_statistics.h"
#include "runtime/base/status.h"
#include "tools/hearth/line_chart.h"
#include "tools/hearth/profile_page_assets.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<double, 6> kPercentTicks = {0, 0.2, 0.4, 0.6, 0.8, 1};

// 1,234,567
std::string Grouped(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string Percent(double value) { return absl::StrFormat("%.1f%%", 100 * value); }

ChartAxis PercentAxis(std::string title) {
  return {.title = std::move(title),
          .ticks = {kPercentTicks.begin(), kPercentTicks.end()},
          .format = TickFormat::kPercent};
}

std::string Figure(const LineChart& chart, std::string_view caption) {
  return absl::StrCat("<figure><h3>", EscapeMarkup(chart.title), "</h3>\n", LineChartSvg(chart),
                      "<figcaption>", EscapeMarkup(caption), "</figcaption></figure>\n");
}

// Indices into facts.domains: the largest ones, in the profile's order.
std::vector<size_t> PageDomains(const ProfileFacts& facts) {
  std::vector<size_t> domains = facts.table;
  std::ranges::stable_sort(domains, [&](size_t a, size_t b) {
    return facts.domains[a].token_count > facts.domains[b].token_count;
  });
  domains.resize(std::min(domains.size(), kPageDomainsMax));
  std::ranges::sort(domains);
  return domains;
}

// Data inside a script element: nothing in it may look like the end of one.
std::string HeatData(const RoutingProfile& profile, const ProfileFacts& facts) {
  const RoutingIdentity& id = profile.identity;
  Json layers = Json::array();
  for (uint32_t layer = 0; layer < id.layer_count; ++layer) layers.push_back(std::to_string(layer));
  if (id.has_mtp) layers.push_back("MTP");
  Json views = Json::array();
  views.push_back({{"name", "all texts"}, {"cells", HeatCells(id, profile.Counts())}});
  for (const size_t i : PageDomains(facts)) {
    const ProfileDomain& domain = profile.domains[i];
    views.push_back({{"name", domain.name}, {"cells", HeatCells(id, domain.counts)}});
  }
  const Json data = {{"alphabet", kCellAlphabet},
                     {"experts", id.expert_count},
                     {"layers", std::move(layers)},
                     {"views", std::move(views)}};
  return absl::StrReplaceAll(data.dump(), {{"<", "\\u003c"}, {"&", "\\u0026"}});
}

std::string HeatSection(const RoutingProfile& profile, const ProfileFacts& facts) {
  const RoutingIdentity& id = profile.identity;
  std::string html = absl::StrFormat(
      "<h2>Heat map</h2>\n<p class=\"soft\">One row for each layer, one cell for each of its %d "
      "experts: how much of the layer's traffic it has, measured in even shares (1/%d of it).</p>\n"
      "<div class=\"controls\"><label>Texts <select id=\"view\"><option>all texts</option>",
      id.expert_count, id.expert_count);
  for (const size_t i : PageDomains(facts)) {
    absl::StrAppend(&html, "<option>", EscapeMarkup(facts.domains[i].name), "</option>");
  }
  absl::StrAppend(
      &html,
      "</select></label><label>Experts <select id=\"order\"><option value=\"heat\">hottest "
      "first</option><option value=\"id\">in order of their numbers</option></select></label>"
      "</div>\n<div class=\"scroll\"><canvas id=\"heat\" role=\"img\" aria-label=\"Heat map of ",
      id.all_layer_count(), " layers by ", id.expert_count, " experts; ",
      Percent(facts.all.hot_traffic[0]),
      " of the traffic goes to the hottest 10%.\"></canvas></div>\n"
      "<div class=\"scale\" id=\"scale\"></div>\n"
      "<noscript><p class=\"note\">The heat map needs a script; the charts below do not.</p>"
      "</noscript>\n<div id=\"tip\"></div>\n<script type=\"application/json\" id=\"data\">",
      HeatData(profile, facts), "</script>\n");
  return html;
}

// The legend in the order of the lines, where they lie furthest apart.
void SortByHeight(LineChart& chart) {
  const auto height = [](const ChartLine& line) {
    return line.points.empty() ? 0 : line.points[2 * line.points.size() / 5].y;
  };
  std::ranges::stable_sort(
      chart.lines, [&](const ChartLine& a, const ChartLine& b) { return height(a) > height(b); });
}

LineChart HitChart(const ReplayFacts& replay) {
  LineChart chart{.title = absl::StrFormat("Windows of %d token%s", replay.window_tokens,
                                           replay.window_tokens == 1 ? "" : "s"),
                  .x = PercentAxis("slots, share of all experts"),
                  .y = PercentAxis("hit rate, distinct experts of a window")};
  constexpr std::array<std::pair<std::string_view, uint32_t>, 4> kColours = {
      {{"static", 3}, {"lru", 1}, {"two-scale", 0}, {"belady", 2}}};
  constexpr uint32_t kOther = 14;  // dashed: it may lie on another
  constexpr double kNamed = 0.40;
  for (const HitCurve& curve : replay.curves) {
    const auto colour = std::ranges::find(kColours, std::string_view(curve.policy),
                                          &std::pair<std::string_view, uint32_t>::first);
    ChartLine line{.colour = colour == kColours.end() ? kOther : colour->second};
    double named = 0;
    for (size_t p = 0; p < curve.hit_rate.size(); ++p) {
      if (replay.slot_shares[p] == kNamed) named = curve.hit_rate[p];
      line.points.push_back(
          {.x = replay.slot_shares[p],
           .y = curve.hit_rate[p],
           .tip = absl::StrFormat("%s: %s at %s slots (%.0f%%), by entry %s", curve.policy,
                                  Percent(curve.hit_rate[p]), Grouped(replay.slot_counts[p]),
                                  100 * replay.slot_shares[p], Percent(curve.entry_hit_rate[p]))});
    }
    line.label = absl::StrFormat("%s, %s at 40%%", curve.policy, Percent(named));
    chart.lines.push_back(std::move(line));
  }
  SortByHeight(chart);
  return chart;
}

std::string HitSection(const ProfileFacts& facts) {
  std::string html = "<h2>Hit rate against slots</h2>\n";
  if (!facts.trace) {
    return html +
           "<p class=\"note\">Needs a trace: run <code>hearth profile</code> with --trace, and "
           "this "
           "report with the trace it wrote.</p>\n";
  }
  absl::StrAppend(
      &html, "<p class=\"soft\">", Grouped(facts.trace->replayed_token_count), " of the trace's ",
      Grouped(facts.trace->token_count),
      " tokens replayed through one pool of slots for all layers. static: the best list that never "
      "changes, chosen in hindsight; belady: perfect foresight. The first quarter warms the pool "
      "up and is not counted.</p>\n<div class=\"pair\">");
  for (const ReplayFacts& replay : facts.trace->replays) {
    absl::StrAppend(&html, Figure(HitChart(replay), ""));
  }
  return html + "</div>\n";
}

LineChart ConcentrationChart(const ProfileFacts& facts) {
  LineChart chart{.title = "Concentration",
                  .x = PercentAxis("hottest experts, share of all"),
                  .y = PercentAxis("share of the traffic")};
  const auto line_of = [](const DomainFacts& domain, std::string_view note) {
    ChartLine line{.label = absl::StrFormat("%s%s, %s at 40%%", domain.name, ToAbsl(note),
                                            Percent(domain.hot_traffic.back()))};
    for (uint32_t i = 0; i <= kCurveSteps; ++i) {
      line.points.push_back({static_cast<double>(i) / kCurveSteps, domain.curve[i]});
    }
    return line;
  };
  // The extremes by name, the others as what lies between them: the table has their numbers.
  const auto by_concentration = [](const DomainFacts& a, const DomainFacts& b) {
    return a.hot_traffic.back() < b.hot_traffic.back();
  };
  const auto [least, most] = std::ranges::minmax_element(facts.domains, by_concentration);
  chart.lines.push_back(line_of(facts.all, ""));
  chart.lines.back().colour = 7;
  if (facts.domains.size() > 1) {
    chart.lines.push_back(line_of(*most, " (most)"));
    chart.lines.push_back(line_of(*least, " (least)"));
    chart.lines.back().colour = 1;
  }
  SortByHeight(chart);
  for (const size_t i : facts.table) {
    const DomainFacts& domain = facts.domains[i];
    if (&domain == &*least || &domain == &*most) continue;
    chart.backdrop.push_back(line_of(domain, ""));
  }
  chart.lines.push_back({.label = "even", .points = {{0, 0}, {1, 1}}, .reference = true});
  if (!chart.backdrop.empty()) chart.backdrop_label = "other domains";
  return chart;
}

LineChart DistinctChart(const ProfileFacts& facts) {
  const std::vector<DistinctFacts>& distinct = facts.trace->distinct;
  LineChart chart{.title = "Distinct experts of a window",
                  .x = {.title = "tokens in the window", .minimum = 1, .maximum = kFactWindowMax},
                  .y = {.title = "distinct experts of a layer"},
                  .legend = LineChart::Legend::kUpperLeft};
  for (uint32_t w = 1; w <= kFactWindowMax; ++w) chart.x.ticks.push_back(w);
  const struct {
    const char* label;
    double DistinctFacts::*value;
    uint32_t colour;
    bool reference;
  } lines[] = {{"if even and independent", &DistinctFacts::if_even, 0, true},
               {"layer with the most", &DistinctFacts::highest_layer, 1, false},
               {"mean of the layers", &DistinctFacts::mean, 0, false},
               {"layer with the fewest", &DistinctFacts::lowest_layer, 2, false}};
  double highest = 1;
  for (const auto& l : lines) {
    ChartLine line{.label = l.label, .colour = l.colour, .reference = l.reference};
    for (const DistinctFacts& d : distinct) {
      highest = std::max(highest, d.*l.value);
      line.points.push_back({.x = static_cast<double>(d.window_tokens),
                             .y = d.*l.value,
                             .tip = absl::StrFormat("%s, %d tokens: %.1f experts", l.label,
                                                    d.window_tokens, d.*l.value)});
    }
    chart.lines.push_back(std::move(line));
  }
  const double step = highest <= 12 ? 2 : highest <= 30 ? 5 : highest <= 60 ? 10 : 20;
  chart.y.maximum = step * std::ceil(highest / step);
  for (double tick = 0; tick <= chart.y.maximum; tick += step) chart.y.ticks.push_back(tick);
  return chart;
}

LineChart LayerChart(const ProfileFacts& facts) {
  const size_t layers = facts.layer_hot10.size();
  LineChart chart{
      .title = "Concentration by layer",
      .x = {.title = facts.identity.has_mtp ? "layer, the last is the MTP layer" : "layer",
            .minimum = 0,
            .maximum = std::max(1.0, static_cast<double>(layers) - 1)},
      .y = PercentAxis("share of the layer's traffic")};
  const size_t step = std::max<size_t>(1, (layers + 11) / 12);
  for (size_t layer = 0; layer < layers; layer += step) {
    chart.x.ticks.push_back(static_cast<double>(layer));
  }
  const struct {
    const char* label;
    const std::vector<double>& values;
    uint32_t colour;
  } lines[] = {{"hottest 40% of its experts", facts.layer_hot40, 0},
               {"hottest 10%", facts.layer_hot10, 1}};
  for (const auto& l : lines) {
    ChartLine line{.label = l.label, .colour = l.colour};
    for (size_t layer = 0; layer < layers; ++layer) {
      if (std::isnan(l.values[layer])) continue;
      line.points.push_back(
          {.x = static_cast<double>(layer),
           .y = l.values[layer],
           .tip = absl::StrFormat("layer %d, %s: %s", layer, l.label, Percent(l.values[layer]))});
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

std::string ShapeSection(const ProfileFacts& facts) {
  std::string html = "<h2>Concentration and windows</h2>\n<div class=\"pair\">";
  absl::StrAppend(&html,
                  Figure(ConcentrationChart(facts),
                         "Experts from the hottest down, all layers in one list: a fixed list of "
                         "that length would serve this share. The further above the even line, "
                         "the less a cache has to hold."));
  if (facts.trace && !facts.trace->distinct.empty()) {
    absl::StrAppend(&html, Figure(DistinctChart(facts),
                                  "What a verification window of several tokens asks of a layer."));
  }
  absl::StrAppend(
      &html, Figure(LayerChart(facts), "Layers where the lines dip are the hard ones to cache."));
  return html + "</div>\n";
}

std::string DomainTable(const ProfileFacts& facts) {
  std::string html = "<div class=\"scroll\"><table><thead><tr><th>domain</th><th>tokens</th>";
  for (const double share : kHotShares) {
    absl::StrAppendFormat(&html, "<th>hottest %.0f%%</th>", 100 * share);
  }
  html += "</tr></thead><tbody>";
  const auto row = [&](const DomainFacts& domain, const char* kind) {
    absl::StrAppend(&html, "<tr", kind, "><th>", EscapeMarkup(domain.name), "</th><td>",
                    Grouped(domain.token_count), "</td>");
    for (const double share : domain.hot_traffic) {
      absl::StrAppend(&html, "<td>", Percent(share), "</td>");
    }
    html += "</tr>";
  };
  for (const DomainFacts& domain : facts.domains) row(domain, "");
  row(facts.all, " class=\"sum\"");
  return html + "</tbody></table></div>\n";
}

std::string Matrix(const ProfileFacts& facts, const std::vector<std::vector<double>>& matrix,
                   std::string_view title, std::string_view caption) {
  std::string html = absl::StrCat("<figure><h3>", EscapeMarkup(title),
                                  "</h3><div class=\"scroll\"><table class=\"matrix\"><thead><tr>"
                                  "<th></th>");
  for (const size_t i : facts.table) {
    absl::StrAppend(&html, "<th>", EscapeMarkup(facts.domains[i].name), "</th>");
  }
  html += "</tr></thead><tbody>";
  for (size_t r = 0; r < matrix.size(); ++r) {
    absl::StrAppend(&html, "<tr><th>", EscapeMarkup(facts.domains[facts.table[r]].name), "</th>");
    for (const double value : matrix[r]) {
      // Shaded by how far it is above nothing; faint enough for the number to be read.
      absl::StrAppendFormat(&html, "<td style=\"--v:%.2f\">%.0f%%</td>", 0.6 * value * value,
                            100 * value);
    }
    html += "</tr>";
  }
  return absl::StrCat(html, "</tbody></table></div><figcaption>", EscapeMarkup(caption),
                      "</figcaption></figure>\n");
}

std::string DomainSection(const ProfileFacts& facts) {
  std::string html =
      "<h2>By domain</h2>\n<p class=\"soft\">Share of the traffic that the domain's own hottest "
      "experts have.</p>\n" +
      DomainTable(facts);
  if (facts.table.size() < 2) return html;
  return absl::StrCat(
      html, facts.table.size() <= 10 ? "<div class=\"pair\">" : "<div>",
      Matrix(facts, facts.carry, "What a list learned on one text is worth on another",
             "Hit rate, by route entry, of keeping the row's hottest 40% while the column's text "
             "is read."),
      Matrix(facts, facts.overlap, "Overlap of choices",
             "Part of the traffic that is the same in both, on average over the layers."),
      "</div>\n");
}

std::string Fact(const std::string& number, const std::string& what) {
  return absl::StrCat("<li><b>", EscapeMarkup(number), "</b>", EscapeMarkup(what), "</li>");
}

std::string Headline(const RoutingProfile& profile, const ProfileFacts& facts) {
  const RoutingIdentity& id = profile.identity;
  std::string html = absl::StrFormat(
      "<h1>Expert routing</h1>\n<p class=\"soft\">%d%s layers of %d experts, %d per token; %s "
      "tokens in %d domain%s</p>\n<ul class=\"facts\">",
      id.layer_count, id.has_mtp ? " + 1 MTP" : "", id.expert_count, id.ranks,
      Grouped(facts.all.token_count), facts.domains.size(), facts.domains.size() == 1 ? "" : "s");
  html += Fact(Percent(facts.all.hot_traffic[0]), "of the traffic goes to the hottest 10%");
  html += Fact(Percent(facts.all.hot_traffic[3]), "of the traffic goes to the hottest 40%");
  if (facts.trace) {
    if (facts.trace->distinct.size() >= 4) {
      html += Fact(
          absl::StrFormat("%.1f", facts.trace->distinct[3].mean),
          absl::StrFormat("distinct experts of a layer in 4 tokens, of %d choices", 4 * id.ranks));
    }
    const ReplayFacts& replay = facts.trace->replays.back();
    const auto at = std::ranges::find(replay.slot_shares, 0.40);
    const HitCurve* const chosen = replay.Find(facts.trace->default_policy);
    const HitCurve* const lru = replay.Find("lru");
    const HitCurve* const belady = replay.Find("belady");
    if (at != replay.slot_shares.end() && chosen != nullptr && lru != nullptr &&
        belady != nullptr) {
      const auto p = static_cast<size_t>(at - replay.slot_shares.begin());
      html += Fact(Percent(chosen->hit_rate[p]),
                   absl::StrFormat("hit rate of %s with 40%% slots, windows of %d; LRU %s, Belady "
                                   "%s",
                                   chosen->policy, replay.window_tokens, Percent(lru->hit_rate[p]),
                                   Percent(belady->hit_rate[p])));
    }
  }
  return html + "</ul>\n";
}

}  // namespace

std::string HeatCells(const RoutingIdentity& identity, std::span<const uint64_t> counts) {
  std::string cells;
  for (uint32_t layer = 0; layer < identity.all_layer_count(); ++layer) {
    const std::span<const uint64_t> row = LayerCounts(identity, counts, layer);
    const auto sum = static_cast<double>(std::accumulate(row.begin(), row.end(), uint64_t{0}));
    for (const uint64_t count : row) {
      if (count == 0) {
        cells += kCellAlphabet[0];
        continue;
      }
      const double ratio = static_cast<double>(count) * identity.expert_count / sum;
      const double level = std::clamp(std::round(32 + 8 * std::log2(ratio)), 1.0, 63.0);
      cells += kCellAlphabet[static_cast<size_t>(level)];
    }
  }
  return cells;
}

std::string ProfilePage(const RoutingProfile& profile, const ProfileFacts& facts) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Expert routing"
      "</title>\n<style>",
      ToAbsl(kPageStyle), "</style>\n</head>\n<body>\n", Headline(profile, facts),
      HeatSection(profile, facts), HitSection(facts), ShapeSection(facts), DomainSection(facts),
      "<footer>model <code>", EscapeMarkup(profile.identity.model_xxh3_128),
      "</code>, tokenizer <code>", EscapeMarkup(profile.identity.tokenizer_xxh3_128),
      "</code>; made by <code>hearth profile report</code></footer>\n<script>", ToAbsl(kPageScript),
      "</script>\n</body>\n</html>\n");
}

}  // namespace hearth::cli
