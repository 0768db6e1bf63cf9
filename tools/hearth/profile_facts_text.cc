// The facts of a profile as text and as JSON.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "tools/hearth/profile_facts.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNameColumnsMax = 24;
constexpr size_t kHeadColumns = 6;  // of a name over a column of a matrix

size_t CodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// The first `columns` code points.
std::string Cut(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) >> 6) == 2) continue;
    if (seen++ == columns) break;
  }
  return std::string(text.substr(0, end));
}

Json Number(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

Json MatrixJson(const std::vector<std::vector<double>>& matrix) {
  Json rows = Json::array();
  for (const std::vector<double>& row : matrix) rows.push_back(row);
  return rows;
}

Json TraceJson(const TraceFacts& trace) {
  Json json = {{"tokens", trace.token_count},
               {"texts", trace.text_count},
               {"replayed_tokens", trace.replayed_token_count}};
  json["distinct"] = Json::array();
  for (const DistinctFacts& d : trace.distinct) {
    json["distinct"].push_back({{"window_tokens", d.window_tokens},
                                {"mean", d.mean},
                                {"lowest_layer", d.lowest_layer},
                                {"highest_layer", d.highest_layer},
                                {"if_even", d.if_even}});
  }
  json["replays"] = Json::array();
  for (const ReplayFacts& replay : trace.replays) {
    Json curves = Json::array();
    for (const HitCurve& curve : replay.curves) {
      curves.push_back({{"policy", curve.policy},
                        {"hit_rate", curve.hit_rate},
                        {"entry_hit_rate", curve.entry_hit_rate}});
    }
    json["replays"].push_back({{"window_tokens", replay.window_tokens},
                               {"slot_shares", replay.slot_shares},
                               {"slots", replay.slot_counts},
                               {"policies", std::move(curves)}});
  }
  return json;
}

void PrintDomain(const DomainFacts& domain, size_t width, std::ostream& out) {
  out << "  " << PaddedName(domain.name, width) << absl::StrFormat(" %10d", domain.token_count);
  for (const double share : domain.hot_traffic) out << absl::StrFormat(" %6.1f%%", 100 * share);
  out << "\n";
}

void PrintMatrix(const ProfileFacts& facts, const std::vector<std::vector<double>>& matrix,
                 size_t width, std::ostream& out) {
  out << "  " << std::string(width, ' ');
  for (const size_t column : facts.table) {
    const std::string head = Cut(facts.domains[column].name, kHeadColumns);
    out << std::string(kHeadColumns + 1 - CodePoints(head), ' ') << head;
  }
  out << "\n";
  for (size_t row = 0; row < facts.table.size(); ++row) {
    out << "  " << PaddedName(facts.domains[facts.table[row]].name, width);
    for (const double value : matrix[row]) out << absl::StrFormat(" %5.0f%%", 100 * value);
    out << "\n";
  }
}

void PrintLayers(const ProfileFacts& facts, std::ostream& out) {
  out << "\nby layer: traffic of the layer's own hottest 10% and 40% of experts\n";
  for (size_t layer = 0; layer < facts.layer_hot10.size(); ++layer) {
    const std::string name = layer < facts.identity.layer_count ? absl::StrCat(layer) : "MTP";
    out << absl::StrFormat("%s%4s", layer % 6 == 0 ? " " : "  ", name);
    if (std::isnan(facts.layer_hot10[layer])) {
      out << "    -    -";
    } else {
      out << absl::StrFormat(" %3.0f%% %3.0f%%", 100 * facts.layer_hot10[layer],
                             100 * facts.layer_hot40[layer]);
    }
    if (layer % 6 == 5 || layer + 1 == facts.layer_hot10.size()) out << "\n";
  }
}

void PrintTrace(const ProfileFacts& facts, const TraceFacts& trace, std::ostream& out) {
  out << absl::StrFormat("\ntrace: %d tokens of %d texts, %d of them replayed\n", trace.token_count,
                         trace.text_count, trace.replayed_token_count);
  out << "distinct experts of a layer in a window (mean, lowest and highest layer, if even)\n";
  for (const DistinctFacts& d : trace.distinct) {
    out << absl::StrFormat("  %d token%s %7.2f %7.2f %7.2f %7.2f\n", d.window_tokens,
                           d.window_tokens == 1 ? " " : "s", d.mean, d.lowest_layer,
                           d.highest_layer, d.if_even);
  }
  const uint64_t experts = uint64_t{facts.identity.layer_count} * facts.identity.expert_count;
  for (const ReplayFacts& replay : trace.replays) {
    out << absl::StrFormat(
        "\nhit rate of distinct experts against slots, windows of %d (one pool of %d experts)\n",
        replay.window_tokens, experts);
    out << "    slots        ";
    for (const HitCurve& curve : replay.curves) out << absl::StrFormat(" %10s", curve.policy);
    out << "\n";
    for (size_t p = 0; p < replay.slot_counts.size(); ++p) {
      out << absl::StrFormat("  %7d %6.1f%%", replay.slot_counts[p], 100 * replay.slot_shares[p]);
      for (const HitCurve& curve : replay.curves) {
        out << absl::StrFormat(" %9.1f%%", 100 * curve.hit_rate[p]);
      }
      out << "\n";
    }
  }
}

}  // namespace

size_t NameColumns(std::span<const DomainFacts> domains) {
  size_t columns = 9;  // "all texts"
  for (const DomainFacts& domain : domains) columns = std::max(columns, CodePoints(domain.name));
  return std::min(columns, kNameColumnsMax);
}

std::string PaddedName(std::string_view name, size_t columns) {
  std::string padded = Cut(name, columns);
  padded.append(columns - CodePoints(padded), ' ');
  return padded;
}

Json DomainJson(const DomainFacts& domain) {
  Json json = {{"name", domain.name}, {"tokens", domain.token_count}};
  for (size_t i = 0; i < kHotShares.size(); ++i) {
    json["traffic_of_hottest"][absl::StrFormat("%.0f%%", 100 * kHotShares[i])] =
        domain.hot_traffic[i];
  }
  return json;
}

Json FactsJson(const ProfileFacts& facts) {
  Json json;
  json["model_xxh3_128"] = facts.identity.model_xxh3_128;
  json["tokenizer_xxh3_128"] = facts.identity.tokenizer_xxh3_128;
  json["layers"] = facts.identity.layer_count;
  json["has_mtp"] = facts.identity.has_mtp;
  json["experts"] = facts.identity.expert_count;
  json["experts_per_token"] = facts.identity.ranks;
  json["all"] = DomainJson(facts.all);
  json["domains"] = Json::array();
  for (const DomainFacts& domain : facts.domains) json["domains"].push_back(DomainJson(domain));
  json["layer_traffic"] = Json::array();
  for (size_t layer = 0; layer < facts.layer_hot10.size(); ++layer) {
    json["layer_traffic"].push_back({{"layer", layer},
                                     {"10%", Number(facts.layer_hot10[layer])},
                                     {"40%", Number(facts.layer_hot40[layer])}});
  }
  json["matrix_domains"] = Json::array();
  for (const size_t i : facts.table) json["matrix_domains"].push_back(facts.domains[i].name);
  json["overlap"] = MatrixJson(facts.overlap);
  json["carried_over"] = MatrixJson(facts.carry);
  json["trace"] = facts.trace ? TraceJson(*facts.trace) : Json(nullptr);
  return json;
}

void PrintFacts(const ProfileFacts& facts, std::ostream& out) {
  const size_t width = NameColumns(facts.domains);
  out << facts.identity.ToString() << "\n";
  out << "\nshare of the trunk's traffic that its hottest experts have, all layers in one list\n";
  out << absl::StrFormat("  %s %10s", std::string(width, ' '), "tokens");
  for (const double share : kHotShares) {
    out << absl::StrFormat(" %7s", absl::StrFormat("%.0f%%", 100 * share));
  }
  out << "\n";
  for (const DomainFacts& domain : facts.domains) PrintDomain(domain, width, out);
  PrintDomain(facts.all, width, out);
  PrintLayers(facts, out);
  if (facts.table.size() > 1) {
    out << absl::StrFormat(
        "\nhit rate of a fixed list: the row's hottest %.0f%% of experts on the column's text\n",
        100 * kCarryShare);
    PrintMatrix(facts, facts.carry, width, out);
    out << "\noverlap of choices: 100% = the same shares of the same experts\n";
    PrintMatrix(facts, facts.overlap, width, out);
    if (facts.table.size() < facts.domains.size()) {
      out << absl::StrFormat("  (the %d largest of %d domains)\n", facts.table.size(),
                             facts.domains.size());
    }
  }
  if (facts.trace) PrintTrace(facts, *facts.trace, out);
}

}  // namespace hearth::cli
