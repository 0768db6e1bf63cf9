// Memory, and the panels that only a large terminal shows.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/units.h"
#include "tools/hearth/top/panels.h"

namespace hearth::cli {
namespace {

std::optional<double> Ratio(uint64_t part, uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

struct MemoryRow {
  std::string_view name;
  std::optional<uint64_t> used;
  uint64_t planned = 0;
  uint64_t limit = 0;  // 0: none known
};

// "20.6 of 20.2 / 24.0 GiB": in one unit.
std::string BytesText(const MemoryRow& m) {
  const bool in_gib = std::max({m.limit, m.planned, m.used.value_or(0)}) >= 1_GiB;
  const auto text = [&](uint64_t bytes) {
    return NumberText(static_cast<double>(bytes) / static_cast<double>(in_gib ? 1_GiB : 1_MiB));
  };
  return absl::StrCat(m.used ? text(*m.used) : "-", " of ", text(m.planned),
                      m.limit == 0 ? "" : " / " + text(m.limit), in_gib ? " GiB" : " MiB");
}

void DrawMemoryRow(const MemoryRow& m, Ink ink, const Looks& looks, const Area& area) {
  constexpr uint32_t kBar = 5;
  area.Text(0, 0, m.name, Ink::kDim);
  const std::string text = BytesText(m);
  const auto length = static_cast<uint32_t>(text.size());
  const double whole = static_cast<double>(std::max({m.limit, m.planned, m.used.value_or(0)}));
  if (area.columns() > kBar + length + 2) {
    DrawGauge(area.Part(0, kBar, 1, area.columns() - kBar - length - 1),
              static_cast<double>(m.used.value_or(0)), whole, static_cast<double>(m.planned), ink,
              looks);
  }
  area.TextRight(0, text);
}

std::string KeyText(ExpertKey key) {
  if (!key.layer.valid()) return "free slot";
  return absl::StrFormat("L%02d e%03d", key.layer.value, key.expert.value);
}

// Name at the left, value at the right.
void Line(const Area& area, uint32_t row, std::string_view name, std::string_view value) {
  area.Text(row, 0, name, Ink::kDim);
  area.Part(row, 0, 1, area.columns()).TextRight(0, value, Ink::kStrong);
}

}  // namespace

void DrawMemory(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  MemoryRow ram = {.name = "RAM", .used = s.process.ram_bytes, .limit = s.facts.ram_limit_bytes};
  MemoryRow card = {.name = "VRAM", .used = s.process.card_bytes, .limit = s.facts.card_bytes};
  for (const MemoryItem& item : s.facts.memory) {
    (item.on_card ? card : ram).planned += item.bytes;
  }
  area.Text(0, 0, "MEMORY", Ink::kTitle);
  area.Text(0, 9, "used of plan / limit", Ink::kDim);
  DrawMemoryRow(ram, Ink::kCpu, looks, area.Part(1, 0, 1, area.columns()));
  if (s.facts.card_bytes != 0) {
    DrawMemoryRow(card, Ink::kVram, looks, area.Part(2, 0, 1, area.columns()));
  } else {
    area.Text(2, 0, "VRAM no card", Ink::kDim);
  }
  const SlotTelemetry& slots = s.engine.slots;
  if (!slots.present) {
    area.Text(3, 0, "SLOTS none", Ink::kDim);
    return;
  }
  area.Text(3, 0, "SLOTS", Ink::kDim);
  const std::string text = absl::StrCat(CountText(slots.used), " of ", CountText(slots.slots),
                                        slots.pinned ? ", pinned" : "");
  const auto length = static_cast<uint32_t>(text.size());
  if (area.columns() > length + 9) {
    DrawGauge(area.Part(3, 6, 1, area.columns() - length - 7), static_cast<double>(slots.used),
              static_cast<double>(slots.slots), std::nullopt, Ink::kVram, looks);
  }
  area.Part(3, 0, 1, area.columns()).TextRight(0, text);
  const RegretTelemetry& regret = s.engine.regret;
  const auto hit = Ratio(regret.hits, regret.distinct);
  const auto best = Ratio(regret.belady_hits, regret.distinct);
  area.Text(4, 0, "REGRET", Ink::kDim);
  const std::string judged =
      hit ? absl::StrFormat("hits %s, best %s", PercentText(hit), PercentText(best))
          : "not yet judged";
  const auto judged_length = static_cast<uint32_t>(judged.size());
  if (hit && area.columns() > judged_length + 10) {
    DrawGauge(area.Part(4, 7, 1, area.columns() - judged_length - 8), *hit, 1, best, Ink::kGood,
              looks);
  }
  area.Part(4, 0, 1, area.columns()).TextRight(0, judged);
}

void DrawSwaps(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  area.Text(0, 0, "SWAPS", Ink::kTitle);
  const SlotTelemetry& slots = s.engine.slots;
  std::string rate = CountText(slots.swaps);
  if (s.recent.span_ns > 0) {
    const double seconds = static_cast<double>(s.recent.span_ns) * 1e-9;
    absl::StrAppend(&rate, ", ", NumberText(static_cast<double>(s.recent.swaps) / seconds), "/s");
  }
  area.Text(0, 9, rate, Ink::kDim);
  const char* arrow = looks.ascii ? "<-" : "←";
  for (uint32_t i = 0; i < slots.recent_count && i + 1 < area.rows(); ++i) {
    const LandedSwap& swap = slots.recent[i];
    uint32_t at = area.Text(i + 1, 0, KeyText(swap.in), Ink::kVram);
    at = area.Text(i + 1, at + 1, arrow, Ink::kDim);
    at = area.Text(i + 1, at + 1, KeyText(swap.out), Ink::kCpu);
    if (area.columns() < 40) continue;
    const std::string heat = swap.out.layer.valid()
                                 ? absl::StrFormat("heat %.3g > %.3g", swap.in_heat, swap.out_heat)
                                 : absl::StrFormat("heat %.3g", swap.in_heat);
    area.Text(i + 1, 25, heat, Ink::kDim);
    if (area.columns() >= 60) area.TextRight(i + 1, absl::StrCat("pass ", swap.window), Ink::kDim);
  }
  if (slots.recent_count == 0) area.Text(1, 0, "none yet", Ink::kDim);
}

void DrawInFlight(const TelemetrySnapshot& s, const Area& area) {
  const ServeCounters& c = s.engine.serve;
  area.Text(0, 0, "IN FLIGHT", Ink::kTitle);
  const uint64_t all = uint64_t{c.queued} + c.reading + c.decoding;
  if (all == 0) {
    area.Text(1, 0, "nothing", Ink::kDim);
    return;
  }
  area.Text(0, 11, "   id phase          prompt output  tok/s  age", Ink::kDim);
  const bool is_narrow = area.columns() < 58;
  if (is_narrow)
    area.Part(0, 11, 1, area.columns())
        .Text(0, 0, "phase, tokens, age                            ");
  for (uint32_t i = 0; i < c.shown_count && i + 1 < area.rows(); ++i) {
    const RequestInFlight& r = c.shown[i];
    const int64_t age_ns = s.engine.at_ns - r.submitted_ns;
    std::optional<double> rate;
    const int64_t decode_ns = s.engine.at_ns - r.first_token_ns;
    if (r.first_token_ns >= 0 && r.output_tokens > 1 && decode_ns > 0) {
      rate = (r.output_tokens - 1) / (static_cast<double>(decode_ns) * 1e-9);
    }
    const Ink ink = r.phase == RequestPhase::kDecoding  ? Ink::kGood
                    : r.phase == RequestPhase::kReading ? Ink::kCpu
                                                        : Ink::kDim;
    if (is_narrow) {
      const uint32_t at = area.Text(i + 1, 0, RequestPhaseName(r.phase), ink);
      const std::string tokens = r.phase == RequestPhase::kDecoding
                                     ? absl::StrCat(r.output_tokens)
                                     : absl::StrCat(r.read_tokens, "/", r.prompt_tokens);
      area.Text(i + 1, std::max(at + 1, 9U), tokens);
      area.TextRight(i + 1, AgeText(age_ns), Ink::kDim);
      continue;
    }
    area.Part(i + 1, 0, 1, 16).TextRight(0, absl::StrCat(r.id), Ink::kDim);
    area.Text(i + 1, 17, RequestPhaseName(r.phase), ink);
    const std::string prompt = r.phase == RequestPhase::kReading
                                   ? absl::StrCat(r.read_tokens, "/", r.prompt_tokens)
                                   : absl::StrCat(r.prompt_tokens);
    area.Part(i + 1, 26, 1, 12).TextRight(0, prompt);
    area.Part(i + 1, 39, 1, 6).TextRight(0, absl::StrCat(r.output_tokens), Ink::kStrong);
    area.Part(i + 1, 46, 1, 6).TextRight(0, NumberText(rate));
    area.Text(i + 1, 54, AgeText(age_ns), Ink::kDim);
  }
}

void DrawTimes(const TelemetrySnapshot& s, const Area& area) {
  const ServeCounters& c = s.engine.serve;
  area.Text(0, 0, "TIMES", Ink::kTitle);
  area.TextRight(0, "median       p99     count", Ink::kDim);
  const std::array<std::pair<std::string_view, const TimeHistogram*>, 6> rows = {
      {{"in the queue", &c.queue_wait},
       {"first token", &c.first_token},
       {"next token", &c.token_gap},
       {"request", &c.request_time},
       {"window", &c.window_time},
       {"scheduler", &c.overhead}}};
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const TimeHistogram& h = *rows[i].second;
    area.Text(i + 1, 0, rows[i].first, Ink::kDim);
    area.TextRight(i + 1, absl::StrFormat("%9s %9s %9s", TimeText(h.Quantile(0.5)),
                                          TimeText(h.Quantile(0.99)), CountText(h.count())));
  }
}

void DrawWindows(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const ServeCounters& c = s.engine.serve;
  uint64_t count = 0;
  uint32_t last = 0;
  for (uint32_t i = 0; i < kWindowRowsCounted; ++i) {
    count += c.windows_by_rows[i];
    if (c.windows_by_rows[i] != 0) last = i + 1;
  }
  area.Text(0, 0, "WINDOWS", Ink::kTitle);
  area.Text(0, 9, "by rows", Ink::kDim);
  area.TextRight(0, CountText(count), Ink::kStrong);
  for (uint32_t i = 0; i < last && i + 1 < area.rows(); ++i) {
    const auto share = Ratio(c.windows_by_rows[i], count);
    area.Text(i + 1, 0, absl::StrCat(i + 1), Ink::kDim);
    area.Part(i + 1, 3, 1, 6).TextRight(0, PercentText(share), Ink::kStrong);
    DrawGauge(area.Part(i + 1, 10, 1, area.columns()), share.value_or(0), 1, std::nullopt,
              Ink::kPcie, looks);
  }
}

void DrawCounters(const TelemetrySnapshot& s, const Area& area) {
  const PrefixCounters& p = s.engine.prefix;
  const StoreStats& store = s.engine.store;
  uint32_t row = 0;
  area.Text(row++, 0, "PREFIX CACHE", Ink::kTitle);
  Line(area, row++, "found", absl::StrCat(CountText(p.hits), " of ", CountText(p.lookups)));
  Line(area, row++, "tokens reused", CountText(p.reused_tokens));
  Line(area, row++, "in RAM",
       absl::StrCat(CountText(p.entries), ", ", FormatBytes(p.bytes), " of ",
                    FormatBytes(p.budget_bytes)));
  Line(area, row++, "on disk",
       absl::StrCat(CountText(p.disk_entries), ", ", FormatBytes(p.disk_bytes)));
  area.Text(row++, 0, "RAM TIER", Ink::kTitle);
  Line(area, row++, "experts",
       absl::StrCat(CountText(store.resident_count), ", ", FormatBytes(store.capacity_bytes)));
  Line(area, row++, "read from the drive",
       absl::StrCat(CountText(store.read_count), ", ", FormatBytes(store.read_bytes)));
  Line(area, row++, "read ahead, used",
       absl::StrCat(CountText(store.lookahead_read_count), ", ",
                    CountText(store.lookahead_used_count)));
  Line(area, row++, "from VRAM, page faults",
       absl::StrCat(CountText(store.exchange_count), ", ", CountText(store.major_fault_count)));
  area.Text(row++, 0, "HTTP", Ink::kTitle);
  Line(area, row++, "connections, streams",
       absl::StrCat(CountText(s.http.connections_open), ", ", CountText(s.http.streams_open)));
  Line(area, row++, "answers 2xx 4xx 5xx",
       absl::StrCat(CountText(s.http.responses[1]), " ", CountText(s.http.responses[3]), " ",
                    CountText(s.http.responses[4])));
}

void DrawPlan(const TelemetrySnapshot& s, const Area& area) {
  area.Text(0, 0, "MEMORY PLAN", Ink::kTitle);
  std::vector<MemoryItem> items = s.facts.memory;
  std::ranges::stable_sort(items, std::ranges::greater(), &MemoryItem::bytes);
  for (uint32_t i = 0; i < items.size() && i + 1 < area.rows(); ++i) {
    const std::string bytes = FormatBytes(items[i].bytes);
    const auto length = static_cast<uint32_t>(bytes.size());
    const uint32_t room = area.columns() > length + 1 ? area.columns() - length - 1 : 0;
    area.Part(i + 1, 0, 1, room)
        .Text(0, 0, items[i].what, items[i].on_card ? Ink::kVram : Ink::kDim);
    area.TextRight(i + 1, bytes);
  }
}

}  // namespace hearth::cli
