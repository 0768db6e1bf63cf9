#include "tools/hearth/top/panels.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/plan/ledger_text.h"

namespace hearth::cli {
namespace {

constexpr double kNsPerSec = 1e9;

double RateOf(uint64_t count, int64_t span_ns) {
  return static_cast<double>(count) / (static_cast<double>(span_ns) / kNsPerSec);
}
std::optional<double> RecentRate(const TelemetrySnapshot& s, uint64_t count) {
  if (s.recent.span_ns <= 0) return std::nullopt;
  return RateOf(count, s.recent.span_ns);
}

// Of the last seconds where there were any experts, else since the start.
struct Shown {
  LedgerCounts total;
  const std::vector<LedgerCounts>* layers;
  std::string when;
};
Shown ShownOf(const TelemetrySnapshot& s) {
  const LedgerCounts recent = s.recent.total();
  if (recent.total().distinct != 0) {
    return {recent, &s.recent.layers,
            absl::StrFormat("last %.0f s", static_cast<double>(s.recent.span_ns) / kNsPerSec)};
  }
  return {s.engine.total(), &s.engine.layers, "since start"};
}

template <class Pick>
std::array<uint64_t, kServiceCount> ByService(const LedgerCounts& counts, Pick pick) {
  std::array<uint64_t, kServiceCount> values{};
  for (uint32_t i = 0; i < kServiceCount; ++i) values[i] = pick(counts.services[i]);
  return values;
}

// Of what a window may upload: the mean of the last windows.
std::optional<double> LinkBudgetUsed(const TelemetrySnapshot& s) {
  const uint64_t budget = s.facts.link_window_budget_bytes;
  if (s.facts.card_bytes == 0 || budget == UINT64_MAX || budget == 0) return std::nullopt;
  if (s.recent.windows == 0) return std::nullopt;
  const uint64_t bytes = s.recent.bytes[static_cast<size_t>(Channel::kLink)];
  return static_cast<double>(bytes) / static_cast<double>(s.recent.windows) /
         static_cast<double>(budget);
}

Ink InkOf(uint32_t service) {
  return static_cast<Ink>(static_cast<uint32_t>(Ink::kVram) + service);
}

std::string Finished(const ServeCounters& c, FinishReason reason) {
  return CountText(c.finished[static_cast<size_t>(reason)]);
}

// "name value", the value strong; returns the column after it and a space.
uint32_t Fact(const Area& area, uint32_t row, uint32_t column, std::string_view name,
              std::string_view value, Ink ink = Ink::kStrong) {
  const uint32_t at = area.Text(row, column, name, Ink::kDim);
  return area.Text(row, at + 1, value, ink) + 1;
}

}  // namespace

void DrawHeading(const TopView& view, const Area& area) {
  uint32_t at = area.Text(0, 0, "hearth top", Ink::kTitle) + 2;
  if (view.snapshot) {
    const TelemetrySnapshot& s = *view.snapshot;
    at = area.Text(0, at, s.facts.model, Ink::kStrong) + 2;
    at = area.Text(0, at, s.facts.device, Ink::kDim) + 2;
    at = area.Text(0, at, absl::StrCat("up ", AgeText(s.uptime_ns))) + 2;
    at = area.Text(0, at, s.facts.version, Ink::kDim) + 2;
    if (view.restarts > 0) {
      at = area.Text(0, at, absl::StrCat("restarted ", view.restarts, "x"), Ink::kBad) + 2;
    }
  }
  const auto length = static_cast<uint32_t>(GlyphsOf(view.source).size());
  if (at + length <= area.columns()) area.TextRight(0, view.source, Ink::kDim);
}

void DrawRequestCounts(const TelemetrySnapshot& s, const Area& area) {
  const ServeCounters& c = s.engine.serve;
  uint64_t refused = 0;
  for (const uint64_t n : c.refused) refused += n;
  uint32_t at = area.Text(0, 0, "REQUESTS", Ink::kTitle) + 1;
  at = Fact(area, 0, at, "decoding", CountText(c.decoding));
  at = Fact(area, 0, at, "reading", CountText(c.reading));
  at = Fact(area, 0, at, "queued", CountText(c.queued));
  at = Fact(area, 0, at, "done",
            CountText(c.finished[static_cast<size_t>(FinishReason::kStop)] +
                      c.finished[static_cast<size_t>(FinishReason::kLength)]));
  at = Fact(area, 0, at, "gone", Finished(c, FinishReason::kCancelled));
  const bool failed = c.finished[static_cast<size_t>(FinishReason::kError)] != 0;
  at = Fact(area, 0, at, "failed", Finished(c, FinishReason::kError),
            failed ? Ink::kBad : Ink::kStrong);
  Fact(area, 0, at, "refused", CountText(refused));
}

void DrawSpeed(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  constexpr uint32_t kLabel = 24;
  std::vector<float> tokens;
  std::vector<float> first_tokens;
  for (const HistoryPoint& point : s.history) {
    tokens.push_back(point.output_tokens_per_sec);
    first_tokens.push_back(point.first_token_sec);
  }
  const uint32_t half = std::max(area.rows() / 2, 1U);
  const Area upper = area.Part(0, 0, half, area.columns());
  const Area lower = area.Part(half, 0, half, area.columns());
  upper.Text(0, 0, "TOKENS/S", Ink::kTitle);
  upper.Text(0, 10, NumberText(RecentRate(s, s.recent.output_tokens)), Ink::kStrong);
  const std::optional<double> prompt = RecentRate(s, s.recent.prompt_tokens);
  if (half > 1) {
    upper.Text(1, 0, absl::StrCat("prompt ", NumberText(prompt)), Ink::kDim);
  } else if (prompt) {
    upper.Text(0, 17, absl::StrCat("+", NumberText(prompt)), Ink::kDim);
  }
  DrawHistory(upper.Part(0, kLabel, half, area.columns()), tokens, Ink::kGood, looks);
  lower.Text(0, 0, "1ST TOKEN", Ink::kTitle);
  lower.Text(0, 10, TimeText(s.engine.serve.first_token.Quantile(0.5)), Ink::kStrong);
  const std::string p99 = absl::StrCat("p99 ", TimeText(s.engine.serve.first_token.Quantile(0.99)));
  if (half > 1) {
    lower.Text(1, 0, p99, Ink::kDim);
  }
  DrawHistory(lower.Part(0, kLabel, half, area.columns()), first_tokens, Ink::kCpu, looks);
}

void DrawTiers(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const Shown shown = ShownOf(s);
  const auto distinct = ByService(shown.total, [](const ServiceTotals& t) { return t.distinct; });
  const auto bytes = ByService(shown.total, [](const ServiceTotals& t) { return t.bytes; });
  const auto time = ByService(shown.total, [](const ServiceTotals& t) {
    return static_cast<uint64_t>(std::max<int64_t>(t.ns, 0));
  });
  constexpr uint32_t kLabel = 9;
  uint32_t at = area.Text(0, 0, "TIERS", Ink::kTitle);
  at = area.Text(0, std::max(at + 2, kLabel), shown.when, Ink::kDim) + 2;
  const std::vector<uint32_t> shares = PermilleShares(distinct);
  for (uint32_t i = 0; i < kServiceCount; ++i) {
    const Area swatch = area.Part(0, at, 1, 2);
    std::array<uint64_t, kServiceCount> only{};
    only[i] = 1;
    DrawShares(swatch, only, looks);
    at = area.Text(0, at + 3, ServiceName(static_cast<Service>(i)), InkOf(i)) + 1;
    at = area.Text(0, at, absl::StrCat(shares[i] / 10, ".", shares[i] % 10, "%"), Ink::kStrong) + 2;
  }
  const auto bar = [&](uint32_t row, std::string_view name, const auto& values) {
    area.Text(row, 0, name, Ink::kDim);
    DrawShares(area.Part(row, kLabel, 1, area.columns()), values, looks);
  };
  bar(1, "experts", distinct);
  bar(2, "bytes", bytes);
  bar(3, "time", time);
}

void DrawLayers(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const Shown shown = ShownOf(s);
  const auto count = static_cast<uint32_t>(shown.layers->size());
  if (count == 0) return;
  constexpr uint32_t kLabel = 9;
  const uint32_t room = area.columns() > kLabel ? area.columns() - kLabel : 0;
  const uint32_t per_layer = std::clamp(room / count, 1U, 3U);
  uint32_t at = area.Text(0, 0, "LAYERS", Ink::kTitle);
  at = area.Text(0, kLabel, "0", Ink::kDim);
  const uint32_t end = std::min(kLabel + count * per_layer, area.columns());
  const std::string last = absl::StrCat(count - 1);
  if (end > at + last.size() + 1) {
    area.Text(0, end - static_cast<uint32_t>(last.size()), last, Ink::kDim);
    area.Text(0, at + 2, "share of each layer's experts", Ink::kDim);
  }
  const std::array<uint32_t, kServiceCount> order =
      area.rows() > kServiceCount ? std::array<uint32_t, kServiceCount>{0, 1, 2, 3}
                                  : std::array<uint32_t, kServiceCount>{0, 3, 2, 1};
  for (uint32_t r = 0; r + 1 < area.rows() && r < kServiceCount; ++r) {
    const auto service = static_cast<Service>(order[r]);
    std::vector<float> shares;
    for (const LedgerCounts& layer : *shown.layers) {
      shares.push_back(layer.total().distinct == 0 ? -1 : static_cast<float>(layer.share(service)));
    }
    area.Text(r + 1, 0, ServiceName(service), InkOf(order[r]));
    DrawHeat(area.Part(r + 1, kLabel, 1, room), shares, per_layer, InkOf(order[r]), looks);
  }
}

void DrawChannels(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  area.Text(0, 0, "CHANNELS", Ink::kTitle);
  const std::optional<double> used = LinkBudgetUsed(s);
  area.Text(0, 10,
            used ? absl::StrFormat("of measured; link at %.0f%% of budget", 100 * *used)
                 : std::string("now, of measured"),
            Ink::kDim);
  constexpr std::array<Ink, kChannelCount> kInks = {Ink::kVram, Ink::kPcie, Ink::kCpu, Ink::kSsd};
  constexpr uint32_t kBar = 17;
  const uint32_t wide = area.columns() > 60 ? 18 : 0;
  const uint32_t rest = 10 + wide;
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    const std::optional<double> rate = RecentRate(s, s.recent.bytes[c]);
    const std::optional<double> measured = s.facts.max_bytes_per_sec[c];
    const double peak = s.peak_bytes_per_sec[c];
    const double most = std::max(measured.value_or(peak), rate.value_or(0));
    area.Text(c + 1, 0, ChannelName(static_cast<Channel>(c)), kInks[c]);
    area.Part(c + 1, 6, 1, 10).TextRight(0, RateText(rate), Ink::kStrong);
    if (area.columns() <= kBar + rest) continue;
    const uint32_t bar = area.columns() - kBar - rest;
    const std::optional<double> mark = peak > 0 ? std::optional<double>(peak) : std::nullopt;
    DrawGauge(area.Part(c + 1, kBar, 1, bar), rate.value_or(0), most, mark, kInks[c], looks);
    const std::string limit = measured ? RateText(measured) : "?";
    area.Text(c + 1, kBar + bar + 1, limit, Ink::kDim);
    if (wide == 0) continue;
    area.Text(c + 1, kBar + bar + 12, absl::StrCat("peak ", RateText(peak)), Ink::kDim);
  }
}

void DrawDrafts(const TelemetrySnapshot& s, const Looks& looks, const Area& area) {
  const ServeCounters& c = s.engine.serve;
  area.Text(0, 0, "DRAFTS", Ink::kTitle);
  area.Text(0, 9, "accepted by position", Ink::kDim);
  if (c.drafted[0] == 0) {
    area.Text(1, 0, "none offered", Ink::kDim);
    return;
  }
  for (uint32_t i = 0; i < kDraftsMax && i + 1 < area.rows() && c.drafted[i] != 0; ++i) {
    const double share = static_cast<double>(c.accepted[i]) / static_cast<double>(c.drafted[i]);
    area.Text(i + 1, 0, absl::StrCat(i + 1), Ink::kDim);
    area.Part(i + 1, 2, 1, 6).TextRight(0, PercentText(share), Ink::kStrong);
    DrawGauge(area.Part(i + 1, 9, 1, area.columns()), share, 1, std::nullopt, Ink::kGood, looks);
  }
}

}  // namespace hearth::cli
