// One line for each memory of the machine, a table by quantisation, and where the bytes lie.
#include "tools/hearth/plan/plan_text.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Rate(double bytes_per_sec) {
  return bytes_per_sec > 0 ? absl::StrFormat("%.1f GB/s", bytes_per_sec * 1e-9) : "not measured";
}

std::string Share(const HitRange& range) {
  if (range.high - range.low < 0.005) return absl::StrFormat("%.0f%%", range.expected * 100);
  return absl::StrFormat("%.0f%% (%.0f-%.0f)", range.expected * 100, range.low * 100,
                         range.high * 100);
}

std::string Speed(const SpeedRange& range) {
  if (range.expected < 10) {
    return absl::StrFormat("%.2f (%.2f-%.2f)", range.expected, range.low, range.high);
  }
  return absl::StrFormat("%.0f (%.0f-%.0f)", range.expected, range.low, range.high);
}

void AddTiers(const SpeedPlan& plan, bool has_card, std::string& text) {
  if (!plan.fits) return;
  if (has_card) {
    absl::StrAppendFormat(&text, "  %-8s card: dense %s, keys and values %s, %d slots %s\n",
                          plan.model.quantisation, FormatBytes(plan.card_dense_bytes),
                          FormatBytes(plan.card_cache_bytes), plan.slot_count,
                          FormatBytes(plan.card_slot_bytes));
  }
  absl::StrAppendFormat(
      &text, "  %-8s RAM: dense %s, keys and values %s, %d experts %s; drive: %d\n",
      plan.model.quantisation, FormatBytes(plan.ram_dense_bytes), FormatBytes(plan.ram_cache_bytes),
      plan.ram_count, FormatBytes(plan.ram_expert_bytes), plan.drive_count);
}

Json RangeJson(double low, double expected, double high) {
  return {{"low", low}, {"expected", expected}, {"high", high}};
}

Json PlanJson(const SpeedPlan& plan) {
  Json j = {{"quantisation", plan.model.quantisation},
            {"expert_bytes", plan.model.expert_bytes},
            {"experts_bytes", plan.model.all_experts_bytes()},
            {"fits", plan.fits}};
  if (!plan.fits) {
    j["trouble"] = plan.trouble;
    return j;
  }
  j["card"] = {{"dense_bytes", plan.card_dense_bytes},
               {"cache_bytes", plan.card_cache_bytes},
               {"slots", plan.slot_count},
               {"slot_bytes", plan.card_slot_bytes}};
  j["ram"] = {{"dense_bytes", plan.ram_dense_bytes},
              {"cache_bytes", plan.ram_cache_bytes},
              {"experts", plan.ram_count},
              {"expert_bytes", plan.ram_expert_bytes}};
  j["drive"] = {{"experts", plan.drive_count}};
  const HitRange& slots = plan.slot_hits;
  j["slot_hits"] = RangeJson(slots.low, slots.expected, slots.high);
  const HitRange& drive = plan.drive_reads;
  j["drive_reads"] = RangeJson(drive.low, drive.expected, drive.high);
  j["floor_tokens_per_sec"] = plan.floor_sec > 0 ? Json(1 / plan.floor_sec) : Json(nullptr);
  const SpeedRange& speed = plan.tokens_per_sec;
  j["tokens_per_sec"] = RangeJson(speed.low, speed.expected, speed.high);
  j["bound"] = plan.bound;
  return j;
}

}  // namespace

std::string PlanText(const PlanReport& report) {
  const PlanMachine& machine = report.machine;
  const bool has_card = machine.card_bytes > 0;
  std::string text = absl::StrFormat("model    %s\n", report.model);
  absl::StrAppendFormat(&text, "RAM      %s may be taken, %s\n", FormatBytes(machine.ram_bytes),
                        Rate(machine.rates.dram));
  if (has_card) {
    absl::StrAppendFormat(&text, "card     %s, %s, %s; link %s\n", report.card,
                          FormatBytes(machine.card_bytes), Rate(machine.rates.card),
                          Rate(machine.rates.link));
  } else {
    absl::StrAppendFormat(&text, "card     none: %s\n", report.card);
  }
  absl::StrAppendFormat(&text, "drive    %s\n", report.drive);
  absl::StrAppendFormat(&text, "hits     %s\n\n",
                        report.from_profile
                            ? "by the profile: expected, and the range of its texts"
                            : "taken as if every expert were as likely: a profile (--profile) "
                              "shows how much more it is");
  absl::StrAppendFormat(&text, "  %-8s %-10s %-10s %-15s %-15s %-20s %-8s %s\n", "experts", "one",
                        "all", "slot hits", "drive reads", "tokens/s", "floor", "bound by");
  for (const SpeedPlan& plan : report.plans) {
    const std::string one = FormatBytes(plan.model.expert_bytes);
    const std::string all = FormatBytes(plan.model.all_experts_bytes());
    if (!plan.fits) {
      absl::StrAppendFormat(&text, "  %-8s %-10s %-10s does not run: %s\n", plan.model.quantisation,
                            one, all, plan.trouble);
      continue;
    }
    absl::StrAppendFormat(&text, "  %-8s %-10s %-10s %-15s %-15s %-20s %-8.2f %s\n",
                          plan.model.quantisation, one, all, has_card ? Share(plan.slot_hits) : "-",
                          Share(plan.drive_reads), Speed(plan.tokens_per_sec), 1 / plan.floor_sec,
                          plan.bound);
  }
  text += "\n";
  for (const SpeedPlan& plan : report.plans) AddTiers(plan, has_card, text);
  text +=
      "  One sequence, no drafts. The floor is what the bytes of a token take at these rates.\n";
  for (const std::string& note : report.notes) absl::StrAppend(&text, "  ", note, "\n");
  return text;
}

std::string PlanJson(const PlanReport& report) {
  const PlanMachine& machine = report.machine;
  const auto rate = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  Json plans = Json::array();
  for (const SpeedPlan& plan : report.plans) plans.push_back(PlanJson(plan));
  const Json j = {{"model", report.model},
                  {"machine",
                   {{"ram_bytes", machine.ram_bytes},
                    {"card_bytes", machine.card_bytes},
                    {"card", report.card},
                    {"drive", report.drive},
                    {"context_tokens", machine.context_tokens},
                    {"dram_bytes_per_sec", rate(machine.rates.dram)},
                    {"card_bytes_per_sec", rate(machine.rates.card)},
                    {"link_bytes_per_sec", rate(machine.rates.link)},
                    {"drive_bytes_per_sec", rate(machine.rates.drive)}}},
                  {"hits_from_profile", report.from_profile},
                  {"notes", report.notes},
                  {"plans", std::move(plans)}};
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hearth::cli
