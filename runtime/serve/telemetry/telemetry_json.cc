#include "runtime/serve/telemetry/telemetry_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "runtime/plan/ledger_text.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsPerNs = 1e-9;

double Seconds(int64_t ns) { return static_cast<double>(ns) * kSecondsPerNs; }

// What is not a finite number is not said.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json Number(const std::optional<double>& value) { return value ? Number(*value) : Json(nullptr); }
Json Number(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json Ratio(double part, double whole) { return whole > 0 ? Number(part / whole) : Json(nullptr); }
Json Ratio(uint64_t part, uint64_t whole) {
  return Ratio(static_cast<double>(part), static_cast<double>(whole));
}

Json HistogramJson(const TimeHistogram& h) {
  return {{"count", h.count()},
          {"sum_sec", Seconds(h.sum_ns)},
          {"mean_sec", Number(h.Mean())},
          {"p50_sec", Number(h.Quantile(0.5))},
          {"p99_sec", Number(h.Quantile(0.99))},
          {"buckets", h.counts}};
}

// [vram, pcie, cpu, ssd] in tenths of a percent that add up to 1000; null when there is nothing.
template <class Pick>
Json Shares(const LedgerCounts& counts, Pick pick) {
  std::array<uint64_t, kServiceCount> values{};
  uint64_t sum = 0;
  for (uint32_t s = 0; s < kServiceCount; ++s) sum += values[s] = pick(counts.services[s]);
  return sum == 0 ? Json(nullptr) : Json(PermilleShares(values));
}

Json SharesJson(const LedgerCounts& counts) {
  return {{"distinct", Shares(counts, [](const ServiceTotals& t) { return t.distinct; })},
          {"entries", Shares(counts, [](const ServiceTotals& t) { return t.entries; })},
          {"bytes", Shares(counts, [](const ServiceTotals& t) { return t.bytes; })},
          {"time", Shares(counts, [](const ServiceTotals& t) {
             return static_cast<uint64_t>(std::max<int64_t>(t.ns, 0));
           })}};
}

Json LedgerTelemetry(const LedgerCounts& counts) {
  Json json;
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    const ServiceTotals& totals = counts.services[s];
    json[std::string(ServiceName(static_cast<Service>(s)))] = {{"distinct", totals.distinct},
                                                               {"entries", totals.entries},
                                                               {"bytes", totals.bytes},
                                                               {"sec", Seconds(totals.ns)}};
  }
  json["wait_sec"] = Seconds(counts.wait_ns);
  json["passes"] = counts.passes;
  json["permille"] = SharesJson(counts);
  return json;
}

// Of each layer, arrays of [vram, pcie, cpu, ssd].
Json LayersJson(std::span<const LedgerCounts> layers) {
  Json json = Json::array();
  for (const LedgerCounts& layer : layers) {
    Json one = {{"distinct", Json::array()},
                {"entries", Json::array()},
                {"bytes", Json::array()},
                {"sec", Json::array()},
                {"wait_sec", Seconds(layer.wait_ns)},
                {"passes", layer.passes}};
    for (const ServiceTotals& totals : layer.services) {
      one["distinct"].push_back(totals.distinct);
      one["entries"].push_back(totals.entries);
      one["bytes"].push_back(totals.bytes);
      one["sec"].push_back(Seconds(totals.ns));
    }
    json.push_back(std::move(one));
  }
  return json;
}

Json ServerJson(const TelemetrySnapshot& s) {
  return {{"version", s.facts.version},
          {"start_id", s.facts.start_id},
          {"started_unix_ms", s.facts.started_unix_ms},
          {"uptime_sec", Seconds(s.uptime_ns)},
          {"model", s.facts.model},
          {"pack", s.facts.pack},
          {"device", s.facts.device},
          {"expert_count", s.facts.expert_count},
          {"context_tokens_max", s.facts.context_tokens_max},
          {"requests_max", s.facts.requests_max},
          {"queue_max", s.facts.queue_max},
          {"notes", s.facts.notes}};
}

Json InFlightJson(const RequestInFlight& r, int64_t now_ns) {
  const bool has_first = r.first_token_ns >= 0;
  const double decode_sec = Seconds(now_ns - r.first_token_ns);
  return {
      {"id", r.id},
      {"phase", RequestPhaseName(r.phase)},
      {"prompt_tokens", r.prompt_tokens},
      {"reused_tokens", r.reused_tokens},
      {"read_tokens", r.read_tokens},
      {"output_tokens", r.output_tokens},
      {"age_sec", Seconds(now_ns - r.submitted_ns)},
      {"first_token_sec",
       has_first ? Json(Seconds(r.first_token_ns - r.submitted_ns)) : Json(nullptr)},
      // The first token comes with the prompt.
      {"tokens_per_sec", has_first && r.output_tokens > 1 ? Ratio(r.output_tokens - 1.0, decode_sec)
                                                          : Json(nullptr)}};
}

Json RequestsJson(const ServeCounters& c, int64_t now_ns) {
  Json finished;
  for (uint32_t f = 1; f < kFinishReasonCount; ++f) {
    finished[FinishReasonName(static_cast<FinishReason>(f))] = c.finished[f];
  }
  Json refused;
  for (uint32_t r = 0; r < kRefusalCount; ++r) {
    refused[RefusalName(static_cast<Refusal>(r))] = c.refused[r];
  }
  Json in_flight = Json::array();
  for (uint32_t i = 0; i < c.shown_count; ++i) {
    in_flight.push_back(InFlightJson(c.shown[i], now_ns));
  }
  return {{"queued", c.queued},
          {"reading", c.reading},
          {"decoding", c.decoding},
          {"submitted", c.submitted},
          {"finished", std::move(finished)},
          {"refused", std::move(refused)},
          {"in_flight", std::move(in_flight)}};
}

Json DraftsJson(const ServeCounters& c) {
  Json positions = Json::array();
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  for (size_t i = 0; i < kDraftsMax && c.drafted[i] != 0; ++i) {
    positions.push_back({{"offered", c.drafted[i]},
                         {"accepted", c.accepted[i]},
                         {"rate", Ratio(c.accepted[i], c.drafted[i])}});
    drafted += c.drafted[i];
    accepted += c.accepted[i];
  }
  return {{"offered", drafted},
          {"accepted", accepted},
          {"rate", Ratio(accepted, drafted)},
          {"by_position", std::move(positions)}};
}

Json WindowsJson(const ServeCounters& c) {
  uint64_t count = 0;
  uint64_t rows = 0;
  for (uint32_t i = 0; i < kWindowRowsCounted; ++i) {
    count += c.windows_by_rows[i];
    rows += c.windows_by_rows[i] * (i + 1);
  }
  return {{"count", count},
          {"by_rows", c.windows_by_rows},
          {"mean_rows", Ratio(rows, count)},
          {"prompt_passes", c.prompt_passes},
          {"idle_sec", Seconds(c.idle_ns)}};
}

Json ExpertKeyJson(ExpertKey key) {
  return key.layer.valid() ? Json{key.layer.value, key.expert.value} : Json(nullptr);
}

Json SlotsJson(const SlotTelemetry& slots) {
  if (!slots.present) return nullptr;
  Json recent = Json::array();
  for (uint32_t i = 0; i < slots.recent_count; ++i) {
    const LandedSwap& swap = slots.recent[i];
    recent.push_back({{"pass", swap.window},
                      {"in", ExpertKeyJson(swap.in)},
                      {"out", ExpertKeyJson(swap.out)},
                      {"in_heat", Number(swap.in_heat)},
                      {"out_heat", Number(swap.out_heat)}});
  }
  return {{"count", slots.slots},           {"used", slots.used},
          {"bytes", slots.bytes},           {"swaps", slots.swaps},
          {"swap_bytes", slots.swap_bytes}, {"cancelled", slots.cancelled},
          {"pinned", slots.pinned},         {"recent", std::move(recent)}};
}

Json RegretJson(const EngineCounts& engine) {
  if (!engine.slots.present) return nullptr;
  const RegretTelemetry& r = engine.regret;
  return {{"windows", r.windows},
          {"distinct", r.distinct},
          {"hits", r.hits},
          {"belady_hits", r.belady_hits},
          {"hit_rate", Ratio(r.hits, r.distinct)},
          {"belady_hit_rate", Ratio(r.belady_hits, r.distinct)}};
}

Json StoreJson(const StoreStats& s) {
  return {{"capacity_bytes", s.capacity_bytes},
          {"resident", s.resident_count},
          {"reads", s.read_count},
          {"read_bytes", s.read_bytes},
          {"read_busy_sec", Seconds(s.read_busy_ns)},
          {"lookahead_reads", s.lookahead_read_count},
          {"lookahead_used", s.lookahead_used_count},
          {"exchanges", s.exchange_count},
          {"major_faults", s.major_fault_count}};
}

Json ChannelsJson(const TelemetrySnapshot& s) {
  const double span_sec = Seconds(s.recent.span_ns);
  Json json;
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    const auto channel = static_cast<Channel>(c);
    const bool has_card = s.facts.card_bytes != 0;
    Json one = {{"bytes", ChannelBytes(s.engine, channel, has_card)},
                {"bytes_per_sec", Ratio(static_cast<double>(s.recent.bytes[c]), span_sec)},
                {"peak_bytes_per_sec", Number(s.peak_bytes_per_sec[c])},
                {"measured_bytes_per_sec", Number(s.facts.max_bytes_per_sec[c])}};
    if (channel == Channel::kLink) {
      const uint64_t budget = s.facts.link_window_budget_bytes;
      one["window_budget_bytes"] = budget == UINT64_MAX ? Json(nullptr) : Json(budget);
      one["bytes_per_window"] = Ratio(s.recent.bytes[c], s.recent.windows);
    }
    json[ChannelName(channel)] = std::move(one);
  }
  return json;
}

Json MemoryJson(const TelemetrySnapshot& s) {
  uint64_t ram = 0;
  uint64_t card = 0;
  Json items = Json::array();
  for (const MemoryItem& item : s.facts.memory) {
    (item.on_card ? card : ram) += item.bytes;
    items.push_back({{"what", item.what}, {"bytes", item.bytes}, {"on_card", item.on_card}});
  }
  const bool has_limit = s.facts.ram_limit_bytes != 0 && s.facts.ram_limit_bytes != UINT64_MAX;
  return {{"ram",
           {{"planned_bytes", ram},
            {"used_bytes", Number(s.process.ram_bytes)},
            {"limit_bytes", has_limit ? Json(s.facts.ram_limit_bytes) : Json(nullptr)},
            {"limit_source", s.facts.ram_limit_source}}},
          {"vram",
           {{"planned_bytes", card},
            {"used_bytes", Number(s.process.card_bytes)},
            {"card_bytes", s.facts.card_bytes}}},
          {"plan", std::move(items)}};
}

Json PrefixJson(const PrefixCounters& p) {
  return {{"lookups", p.lookups},
          {"hits", p.hits},
          {"hit_rate", Ratio(p.hits, p.lookups)},
          {"reused_tokens", p.reused_tokens},
          {"stored", p.stored},
          {"evicted", p.evicted},
          {"entries", p.entries},
          {"bytes", p.bytes},
          {"budget_bytes", p.budget_bytes},
          {"disk",
           {{"entries", p.disk_entries},
            {"bytes", p.disk_bytes},
            {"budget_bytes", p.disk_budget_bytes},
            {"hits", p.disk_hits},
            {"errors", p.disk_errors}}}};
}

Json RecentJson(const RecentCounts& r) {
  const double span_sec = Seconds(r.span_ns);
  const auto rate = [&](uint64_t count) { return Ratio(static_cast<double>(count), span_sec); };
  return {{"span_sec", span_sec},
          {"prompt_tokens", r.prompt_tokens},
          {"output_tokens", r.output_tokens},
          {"windows", r.windows},
          {"swaps", r.swaps},
          {"offered", r.drafted},
          {"accepted", r.accepted},
          {"prompt_tokens_per_sec", rate(r.prompt_tokens)},
          {"output_tokens_per_sec", rate(r.output_tokens)},
          {"windows_per_sec", rate(r.windows)},
          {"swaps_per_sec", rate(r.swaps)},
          {"acceptance", Ratio(r.accepted, r.drafted)},
          {"channel_bytes", r.bytes},
          {"time_to_first_token", HistogramJson(r.first_token)},
          {"token_gap", HistogramJson(r.token_gap)},
          {"scheduler_overhead", HistogramJson(r.overhead)},
          {"services", LedgerTelemetry(r.total())},
          {"layers", LayersJson(r.layers)}};
}

Json HistoryJson(std::span<const HistoryPoint> history) {
  Json output = Json::array();
  Json prompt = Json::array();
  Json first_token = Json::array();
  Json vram = Json::array();
  // Four significant digits are more than a picture shows.
  const auto rounded = [](float value) {
    if (!std::isfinite(value)) return Json(nullptr);
    const double scale = std::abs(value) < 10 ? 1e4 : 10;
    return Json(std::round(static_cast<double>(value) * scale) / scale);
  };
  for (const HistoryPoint& point : history) {
    output.push_back(rounded(point.output_tokens_per_sec));
    prompt.push_back(rounded(point.prompt_tokens_per_sec));
    first_token.push_back(point.first_token_sec < 0 ? Json(nullptr)
                                                    : rounded(point.first_token_sec));
    vram.push_back(point.vram_share < 0 ? Json(nullptr) : rounded(point.vram_share));
  }
  return {{"interval_sec", 1},
          {"output_tokens_per_sec", std::move(output)},
          {"prompt_tokens_per_sec", std::move(prompt)},
          {"time_to_first_token_sec", std::move(first_token)},
          {"vram_share", std::move(vram)}};
}

Json BoundsJson() {
  Json bounds = Json::array();
  for (const int64_t ns : TimeHistogram::kBoundsNs) bounds.push_back(Seconds(ns));
  return bounds;
}

Json HttpJson(const HttpCounters& h) {
  return {{"connections_open", h.connections_open},
          {"connections", h.connections},
          {"connections_refused", h.connections_refused},
          {"streams_open", h.streams_open},
          {"responses",
           {{"1xx", h.responses[0]},
            {"2xx", h.responses[1]},
            {"3xx", h.responses[2]},
            {"4xx", h.responses[3]},
            {"5xx", h.responses[4]}}}};
}

}  // namespace

std::string TelemetryJson(const TelemetrySnapshot& s) {
  const ServeCounters& c = s.engine.serve;
  const Json json = {
      {"schema", "hearth.telemetry"},
      {"schema_version", kTelemetrySchemaVersion},
      {"server", ServerJson(s)},
      {"requests", RequestsJson(c, s.engine.at_ns)},
      {"tokens",
       {{"prompt", c.prompt_tokens},
        {"reused", c.reused_tokens},
        {"output", c.output_tokens},
        {"reused_share", Ratio(c.reused_tokens, c.reused_tokens + c.prompt_tokens)}}},
      {"latency",
       {{"bucket_bounds_sec", BoundsJson()},
        {"queue_wait", HistogramJson(c.queue_wait)},
        {"time_to_first_token", HistogramJson(c.first_token)},
        {"token_gap", HistogramJson(c.token_gap)},
        {"request", HistogramJson(c.request_time)},
        {"window", HistogramJson(c.window_time)},
        {"scheduler_overhead", HistogramJson(c.overhead)}}},
      {"windows", WindowsJson(c)},
      {"drafts", DraftsJson(c)},
      {"services", LedgerTelemetry(s.engine.total())},
      {"layers", LayersJson(s.engine.layers)},
      {"slots", SlotsJson(s.engine.slots)},
      {"regret", RegretJson(s.engine)},
      {"ram_tier", StoreJson(s.engine.store)},
      {"dense_bytes", s.engine.dense_bytes},
      {"channels", ChannelsJson(s)},
      {"memory", MemoryJson(s)},
      {"prefix_cache", PrefixJson(s.engine.prefix)},
      {"http", HttpJson(s.http)},
      {"process", {{"disk_read_bytes", Number(s.process.disk_read_bytes)}}},
      {"recent", RecentJson(s.recent)},
      {"history", HistoryJson(s.history)}};
  // Names of packs and notes may hold any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hearth
