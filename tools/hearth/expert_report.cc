#include "tools/hearth/expert_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/plan/ledger_text.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsPerNs = 1e-9;

Json TotalsJson(const ServiceTotals& totals) {
  return {{"distinct", totals.distinct},
          {"entries", totals.entries},
          {"bytes", totals.bytes},
          {"seconds", static_cast<double>(totals.ns) * kSecondsPerNs}};
}

Json StoreJson(const StoreStats& s) {
  return {{"capacity_bytes", s.capacity_bytes},
          {"resident", s.resident_count},
          {"reads", s.read_count},
          {"read_bytes", s.read_bytes},
          {"read_busy_sec", static_cast<double>(s.read_busy_ns) * kSecondsPerNs},
          {"lookahead_reads", s.lookahead_read_count},
          {"lookahead_used", s.lookahead_used_count},
          {"exchanges", s.exchange_count},
          {"major_faults", s.major_fault_count}};
}

Json SlotsJson(const SlotCache& slots) {
  const SlotCacheStats stats = slots.stats();
  Json pools = Json::array();
  for (const SlotPoolShape& pool : slots.pools()) {
    pools.push_back({{"slot_bytes", pool.slot_bytes},
                     {"slots", pool.slot_count},
                     {"spares", pool.spare_count},
                     {"layers", pool.layers.size()}});
  }
  return {{"resident", stats.resident_count}, {"swaps", stats.swap_count},
          {"swap_bytes", stats.swap_bytes},   {"cancelled", stats.cancelled_count},
          {"pinned", stats.pinned},           {"pools", std::move(pools)}};
}

Json RegretJson(const RegretGauge* gauge) {
  if (gauge == nullptr) return nullptr;
  const Regret regret = gauge->Measure();
  return {{"windows", regret.window_count},
          {"hit_rate", regret.hit_rate()},
          {"belady_hit_rate", regret.belady_hit_rate()}};
}

}  // namespace

Json ServicesJson(const LedgerCounts& counts) {
  Json json;
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    json[std::string(ServiceName(static_cast<Service>(s)))] = TotalsJson(counts.services[s]);
  }
  return json;
}

Json LedgerJson(const LedgerCounts& counts) {
  Json json = ServicesJson(counts);
  json["total"] = TotalsJson(counts.total());
  return json;
}

Json RequestJson(const RequestCounts& served) {
  Json json;
  const auto one = [](const RequestServed& s) {
    return Json{{"distinct", s.distinct}, {"entries", s.entries}};
  };
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    json[std::string(ServiceName(static_cast<Service>(s)))] = one(served.services[s]);
  }
  json["total"] = one(served.total());
  return json;
}

Json ExpertStatsJson(const ExpertPlacement& experts, bool with_layers) {
  const Ledger& ledger = experts.tiers().ledger();
  const LedgerCounts total = ledger.total();
  Json json = {{"hit_rate", total.share(Service::kVram)},
               {"wait_sec", static_cast<double>(total.wait_ns) * kSecondsPerNs},
               {"ram", StoreJson(experts.store().stats())}};
  json["slots"] = experts.slots() == nullptr ? Json(nullptr) : SlotsJson(*experts.slots());
  json["regret"] = RegretJson(experts.regret());
  json["notes"] = experts.Notes();
  if (!with_layers) return json;
  Json layers = Json::array();
  for (const LedgerCounts& layer : ledger.layers()) {
    Json one = LedgerJson(layer);
    one["wait_sec"] = static_cast<double>(layer.wait_ns) * kSecondsPerNs;
    layers.push_back(std::move(one));
  }
  json["layers"] = std::move(layers);
  return json;
}

Json MemoryPlanJson(const MemoryPlan& plan) {
  Json items = Json::array();
  for (const MemoryItem& item : plan.items) {
    items.push_back({{"what", item.what}, {"bytes", item.bytes}, {"on_card", item.on_card}});
  }
  return {{"ram_bytes", plan.ram_bytes()},
          {"vram_bytes", plan.card_bytes()},
          {"items", std::move(items)}};
}

std::string ExpertStatsText(const ExpertPlacement& experts) {
  const Ledger& ledger = experts.tiers().ledger();
  std::string text;
  for (const std::string& line : LedgerTable(ledger.total())) absl::StrAppend(&text, line, "\n");
  absl::StrAppendFormat(&text, "%5s %9s %8s %8s %8s %8s\n", "layer", "distinct", "vram %", "pcie %",
                        "cpu %", "ssd %");
  for (size_t l = 0; l < ledger.layers().size(); ++l) {
    const LedgerCounts& counts = ledger.layers()[l];
    absl::StrAppendFormat(&text, "%5d %9d %8.1f %8.1f %8.1f %8.1f\n", l, counts.total().distinct,
                          100 * counts.share(Service::kVram), 100 * counts.share(Service::kPcie),
                          100 * counts.share(Service::kCpu), 100 * counts.share(Service::kSsd));
  }
  if (const SlotCache* slots = experts.slots(); slots != nullptr) {
    const SlotCacheStats stats = slots->stats();
    absl::StrAppendFormat(&text, "slots: %d experts resident, %d swaps (%s)%s\n",
                          stats.resident_count, stats.swap_count, FormatBytes(stats.swap_bytes),
                          stats.pinned ? ", pinned" : "");
    const Regret regret = experts.regret()->Measure();
    absl::StrAppendFormat(&text,
                          "last %d windows: %.1f%% of the trunk's experts in their slots; knowing "
                          "the future %.1f%%\n",
                          regret.window_count, 100 * regret.hit_rate(),
                          100 * regret.belady_hit_rate());
  }
  const StoreStats ram = experts.store().stats();
  if (ram.read_count != 0) {
    absl::StrAppendFormat(&text, "drive: %d experts read (%s) in %.3f s of reading\n",
                          ram.read_count, FormatBytes(ram.read_bytes),
                          static_cast<double>(ram.read_busy_ns) * kSecondsPerNs);
  }
  return text;
}

}  // namespace hearth::cli
