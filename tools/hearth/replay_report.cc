#include "tools/hearth/replay_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1 << 20;

// 1,234,567
std::string Grouped(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

double ReplayRow::windows_per_sec() const {
  return ns <= 0 ? 0 : static_cast<double>(result.window_count) * 1e9 / static_cast<double>(ns);
}

double ReplayRow::bytes_per_window(uint64_t expert_bytes) const {
  return result.uploads_per_layer() * static_cast<double>(result.layers.size()) *
         static_cast<double>(expert_bytes);
}

void PrintReplayTable(std::span<const ReplayRow> rows, uint64_t expert_bytes, std::ostream& out) {
  const ReplayRow* last = nullptr;
  for (const ReplayRow& row : rows) {
    if (last == nullptr || last->window_tokens != row.window_tokens ||
        last->slot_count != row.slot_count) {
      out << absl::StrFormat("%swindows of %d, %s slots (%.1f%%)\n", last == nullptr ? "" : "\n",
                             row.window_tokens, Grouped(row.slot_count), 100 * row.slot_share);
      out << "  policy             hit  by entry  uploads/layer  MiB/window   regret  gap closed"
             "  windows/s\n";
      last = &row;
    }
    const double hit = row.result.hit_rate();
    out << absl::StrFormat(
        "  %-14s  %.4f    %.4f  %13.2f  %10.1f  %7.4f  %9.1f%%  %9.0f\n", row.policy, hit,
        row.result.entry_hit_rate(), row.result.uploads_per_layer(),
        row.bytes_per_window(expert_bytes) / kMiB, row.belady_hit_rate - hit,
        100 * GapClosed(row.lru_hit_rate, hit, row.belady_hit_rate), row.windows_per_sec());
  }
}

void PrintReplayCsv(std::span<const ReplayRow> rows, uint64_t expert_bytes, std::ostream& out) {
  out << "policy,window_tokens,slots,slot_share,swaps_per_layer_max,windows,distinct,hit_rate,"
         "layer_mean_hit_rate,entry_hit_rate,uploads_per_layer,bytes_per_window,regret,gap_closed,"
         "windows_per_sec\n";
  for (const ReplayRow& row : rows) {
    const double hit = row.result.hit_rate();
    out << absl::StrFormat(
        "%s,%d,%d,%.6f,%d,%d,%d,%.6f,%.6f,%.6f,%.4f,%.0f,%.6f,%.6f,%.0f\n", row.policy,
        row.window_tokens, row.slot_count, row.slot_share, row.swaps_per_layer_max,
        row.result.window_count, row.result.total().distinct, hit, row.result.layer_mean_hit_rate(),
        row.result.entry_hit_rate(), row.result.uploads_per_layer(),
        row.bytes_per_window(expert_bytes), row.belady_hit_rate - hit,
        GapClosed(row.lru_hit_rate, hit, row.belady_hit_rate), row.windows_per_sec());
  }
}

Json ReplayJson(std::span<const ReplayRow> rows, uint64_t expert_bytes) {
  Json results = Json::array();
  for (const ReplayRow& row : rows) {
    const ReplayCounts total = row.result.total();
    const double hit = row.result.hit_rate();
    Json j;
    j["policy"] = row.policy;
    j["oracle"] = row.oracle;
    j["window_tokens"] = row.window_tokens;
    j["slots"] = row.slot_count;
    j["slot_share"] = row.slot_share;
    j["swaps_per_layer_max"] = row.swaps_per_layer_max;
    j["windows"] = row.result.window_count;
    j["distinct"] = total.distinct;
    j["distinct_hits"] = total.distinct_hits;
    j["entries"] = total.entries;
    j["entry_hits"] = total.entry_hits;
    j["uploads"] = total.uploads;
    j["hit_rate"] = hit;
    j["layer_mean_hit_rate"] = row.result.layer_mean_hit_rate();
    j["entry_hit_rate"] = row.result.entry_hit_rate();
    j["uploads_per_layer"] = row.result.uploads_per_layer();
    j["bytes_per_window"] = row.bytes_per_window(expert_bytes);
    j["regret"] = row.belady_hit_rate - hit;
    j["gap_closed"] = GapClosed(row.lru_hit_rate, hit, row.belady_hit_rate);
    j["windows_per_sec"] = row.windows_per_sec();
    Json layers = Json::array();
    for (const ReplayCounts& layer : row.result.layers) {
      layers.push_back({{"distinct", layer.distinct}, {"distinct_hits", layer.distinct_hits}});
    }
    j["layers"] = std::move(layers);
    results.push_back(std::move(j));
  }
  return results;
}

}  // namespace hearth::cli
