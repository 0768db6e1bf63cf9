#include "runtime/serve/telemetry/metrics_text.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr double kSecondsPerNs = 1e-9;

double Seconds(int64_t ns) { return static_cast<double>(ns) * kSecondsPerNs; }

// In a label's value: backslash, quote and newline.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string Label(std::string_view name, std::string_view value) {
  return absl::StrCat(ToAbsl(name), "=\"", Escaped(value), "\"");
}

// Writes one family after another; the lines of one stand together, as the format asks.
class MetricsWriter {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    absl::StrAppend(&text_, "# HELP ", ToAbsl(name), " ", ToAbsl(help), "\n# TYPE ", ToAbsl(name),
                    " ", ToAbsl(type), "\n");
  }
  void Value(std::string_view labels, uint64_t value) { Line("", labels, absl::StrCat(value)); }
  // Not defined: no line.
  void Value(std::string_view labels, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) Line("", labels, absl::StrFormat("%.9g", *value));
  }
  void Counter(std::string_view name, std::string_view help, uint64_t value) {
    Family(name, "counter", help);
    Value("", value);
  }
  void CounterSeconds(std::string_view name, std::string_view help, int64_t ns) {
    Family(name, "counter", help);
    Line("", "", absl::StrFormat("%.9f", Seconds(ns)));
  }
  void Gauge(std::string_view name, std::string_view help, uint64_t value) {
    Family(name, "gauge", help);
    Value("", value);
  }
  void Gauge(std::string_view name, std::string_view help, const std::optional<double>& value) {
    Family(name, "gauge", help);
    Value("", value);
  }
  void Histogram(std::string_view name, std::string_view help, const TimeHistogram& h) {
    Family(name, "histogram", help);
    uint64_t below = 0;
    for (size_t b = 0; b < TimeHistogram::kBoundsNs.size(); ++b) {
      below += h.counts[b];
      const std::string bound = absl::StrFormat("%g", Seconds(TimeHistogram::kBoundsNs[b]));
      Line("_bucket", Label("le", bound), absl::StrCat(below));
    }
    Line("_bucket", "le=\"+Inf\"", absl::StrCat(h.count()));
    Line("_sum", "", absl::StrFormat("%.9f", Seconds(h.sum_ns)));
    Line("_count", "", absl::StrCat(h.count()));
  }
  void Seconds9(std::string_view labels, int64_t ns) {
    Line("", labels, absl::StrFormat("%.9f", Seconds(ns)));
  }
  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view suffix, std::string_view labels, const std::string& value) {
    absl::StrAppend(&text_, ToAbsl(name_), ToAbsl(suffix));
    if (!labels.empty()) absl::StrAppend(&text_, "{", ToAbsl(labels), "}");
    absl::StrAppend(&text_, " ", value, "\n");
  }
  std::string_view name_;  // of static storage
  std::string text_;
};

void WriteServer(const TelemetrySnapshot& s, MetricsWriter& w) {
  w.Family("hearth_info", "gauge", "Always 1; says what runs.");
  w.Value(absl::StrCat(Label("version", s.facts.version), ",", Label("model", s.facts.model), ",",
                       Label("device", s.facts.device), ",", Label("start_id", s.facts.start_id)),
          uint64_t{1});
  w.Gauge("hearth_start_time_seconds", "When the server started, since 1970.",
          static_cast<double>(s.facts.started_unix_ms) * 1e-3);
  w.Gauge("hearth_uptime_seconds", "Since the server started.", Seconds(s.uptime_ns));
}

void WriteRequests(const ServeCounters& c, MetricsWriter& w) {
  w.Family("hearth_requests", "gauge", "Requests that have not ended, by phase.");
  w.Value(Label("phase", "queued"), uint64_t{c.queued});
  w.Value(Label("phase", "reading"), uint64_t{c.reading});
  w.Value(Label("phase", "decoding"), uint64_t{c.decoding});
  w.Counter("hearth_requests_submitted_total", "Requests that were taken.", c.submitted);
  w.Family("hearth_requests_finished_total", "counter", "Requests that ended, by reason.");
  for (uint32_t f = 1; f < kFinishReasonCount; ++f) {
    w.Value(Label("reason", FinishReasonName(static_cast<FinishReason>(f))), c.finished[f]);
  }
  w.Family("hearth_requests_refused_total", "counter", "Requests that were not taken, by reason.");
  for (uint32_t r = 0; r < kRefusalCount; ++r) {
    w.Value(Label("reason", RefusalName(static_cast<Refusal>(r))), c.refused[r]);
  }
  w.Counter("hearth_prompt_tokens_total", "Tokens of prompts that were computed.", c.prompt_tokens);
  w.Counter("hearth_reused_tokens_total", "Tokens of prompts whose state was found ready.",
            c.reused_tokens);
  w.Counter("hearth_output_tokens_total", "Tokens that were emitted.", c.output_tokens);
}

void WriteTimes(const ServeCounters& c, MetricsWriter& w) {
  w.Histogram("hearth_queue_wait_seconds", "From being submitted to the first pass.", c.queue_wait);
  w.Histogram("hearth_time_to_first_token_seconds", "From being submitted to the first token.",
              c.first_token);
  w.Histogram("hearth_token_gap_seconds", "Between tokens of a request.", c.token_gap);
  w.Histogram("hearth_request_seconds", "From being submitted to the end.", c.request_time);
  w.Histogram("hearth_window_seconds", "Of a window of decoding.", c.window_time);
  w.Histogram("hearth_scheduler_overhead_seconds", "Of a window, what computes nothing.",
              c.overhead);
  w.CounterSeconds("hearth_idle_seconds_total", "With nothing to do.", c.idle_ns);
}

void WriteWindows(const ServeCounters& c, MetricsWriter& w) {
  w.Family("hearth_windows_total", "counter", "Windows of decoding, by their rows.");
  for (uint32_t r = 0; r < kWindowRowsCounted; ++r) {
    w.Value(Label("rows", absl::StrCat(r + 1)), c.windows_by_rows[r]);
  }
  w.Counter("hearth_prompt_passes_total", "Passes over parts of prompts.", c.prompt_passes);
  w.Family("hearth_drafts_offered_total", "counter", "Drafts, by position in the window.");
  for (uint32_t p = 0; p < kDraftsMax; ++p) {
    w.Value(Label("position", absl::StrCat(p + 1)), c.drafted[p]);
  }
  w.Family("hearth_drafts_accepted_total", "counter", "Drafts that were right, by position.");
  for (uint32_t p = 0; p < kDraftsMax; ++p) {
    w.Value(Label("position", absl::StrCat(p + 1)), c.accepted[p]);
  }
}

void WriteServices(const LedgerCounts& total, MetricsWriter& w) {
  const auto each = [&](auto write) {
    for (uint32_t s = 0; s < kServiceCount; ++s) {
      write(Label("service", ServiceName(static_cast<Service>(s))), total.services[s]);
    }
  };
  w.Family("hearth_experts_total", "counter", "Distinct experts of layers, by who served them.");
  each([&](const std::string& l, const ServiceTotals& t) { w.Value(l, t.distinct); });
  w.Family("hearth_expert_entries_total", "counter", "Rows times experts, by who served them.");
  each([&](const std::string& l, const ServiceTotals& t) { w.Value(l, t.entries); });
  w.Family("hearth_expert_bytes_total", "counter", "Bytes of experts that were read.");
  each([&](const std::string& l, const ServiceTotals& t) { w.Value(l, t.bytes); });
  w.Family("hearth_expert_seconds_total", "counter", "Time of the services; see TELEMETRY.md.");
  each([&](const std::string& l, const ServiceTotals& t) { w.Seconds9(l, t.ns); });
  w.CounterSeconds("hearth_expert_wait_seconds_total", "Workers waited for an expert.",
                   total.wait_ns);
}

void WriteLayers(const EngineCounts& engine, MetricsWriter& w) {
  w.Family("hearth_layer_experts_total", "counter", "Distinct experts, by layer and service.");
  for (size_t l = 0; l < engine.layers.size(); ++l) {
    const std::string layer = Label("layer", absl::StrCat(l));
    for (uint32_t s = 0; s < kServiceCount; ++s) {
      w.Value(absl::StrCat(layer, ",", Label("service", ServiceName(static_cast<Service>(s)))),
              engine.layers[l].services[s].distinct);
    }
  }
}

std::optional<double> Ratio(uint64_t part, uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

void WriteTiers(const EngineCounts& engine, MetricsWriter& w) {
  const SlotTelemetry& slots = engine.slots;
  w.Gauge("hearth_slots", "Experts that VRAM slots can hold.", slots.slots);
  w.Gauge("hearth_slots_used", "Experts that they hold.", slots.used);
  w.Counter("hearth_swaps_total", "Experts that came into a slot.", slots.swaps);
  w.Counter("hearth_swap_bytes_total", "Bytes of them.", slots.swap_bytes);
  w.Counter("hearth_swaps_cancelled_total", "Swaps that did not come about.", slots.cancelled);
  w.Gauge("hearth_regret_hit_rate", "Share of experts found in slots, of the last windows judged.",
          Ratio(engine.regret.hits, engine.regret.distinct));
  w.Gauge("hearth_regret_belady_hit_rate", "The same by an oracle that knows the future.",
          Ratio(engine.regret.belady_hits, engine.regret.distinct));
  const StoreStats& store = engine.store;
  w.Gauge("hearth_ram_tier_bytes", "RAM for experts.", store.capacity_bytes);
  w.Gauge("hearth_ram_tier_experts", "Experts in RAM.", store.resident_count);
  w.Counter("hearth_drive_reads_total", "Experts read from the drive.", store.read_count);
  w.Counter("hearth_drive_read_bytes_total", "Bytes of them.", store.read_bytes);
  w.CounterSeconds("hearth_drive_busy_seconds_total", "With at least one read under way.",
                   store.read_busy_ns);
  w.Counter("hearth_lookahead_reads_total", "Reads that were only foreseen.",
            store.lookahead_read_count);
  w.Counter("hearth_lookahead_used_total", "Of these, those that were needed.",
            store.lookahead_used_count);
  w.Counter("hearth_ram_exchanges_total", "Blocks whose bytes came back from VRAM.",
            store.exchange_count);
  w.Counter("hearth_major_faults_total", "Page faults of the mapped tier that had to read.",
            store.major_fault_count);
}

void WriteChannels(const TelemetrySnapshot& s, MetricsWriter& w) {
  w.Family("hearth_channel_bytes_total", "counter", "Bytes that crossed card, link, dram, drive.");
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    const auto channel = static_cast<Channel>(c);
    w.Value(Label("channel", ChannelName(channel)),
            ChannelBytes(s.engine, channel, s.facts.card_bytes != 0));
  }
  w.Family("hearth_channel_measured_bytes_per_second", "gauge",
           "What the channel can do, measured before serving.");
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    w.Value(Label("channel", ChannelName(static_cast<Channel>(c))), s.facts.max_bytes_per_sec[c]);
  }
  w.Family("hearth_channel_peak_bytes_per_second", "gauge", "The best second so far.");
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    w.Value(Label("channel", ChannelName(static_cast<Channel>(c))),
            std::optional<double>(s.peak_bytes_per_sec[c]));
  }
}

void WriteMemory(const TelemetrySnapshot& s, MetricsWriter& w) {
  uint64_t ram = 0;
  uint64_t card = 0;
  for (const MemoryItem& item : s.facts.memory) (item.on_card ? card : ram) += item.bytes;
  w.Family("hearth_memory_planned_bytes", "gauge", "The memory plan.");
  w.Value(Label("memory", "ram"), ram);
  w.Value(Label("memory", "vram"), card);
  w.Family("hearth_memory_used_bytes", "gauge",
           "RAM of this process; VRAM of the card by anybody.");
  if (s.process.ram_bytes) w.Value(Label("memory", "ram"), *s.process.ram_bytes);
  if (s.process.card_bytes) w.Value(Label("memory", "vram"), *s.process.card_bytes);
  w.Family("hearth_process_disk_read_bytes_total", "counter",
           "Bytes that the kernel read from drives for this process.");
  if (s.process.disk_read_bytes) w.Value("", *s.process.disk_read_bytes);
}

void WritePrefix(const PrefixCounters& p, MetricsWriter& w) {
  w.Counter("hearth_prefix_lookups_total", "Prompts looked up among kept states.", p.lookups);
  w.Counter("hearth_prefix_hits_total", "Of these, those that found at least one token.", p.hits);
  w.Counter("hearth_prefix_stored_total", "States that were kept.", p.stored);
  w.Counter("hearth_prefix_evicted_total", "States dropped for want of room.", p.evicted);
  w.Gauge("hearth_prefix_entries", "States in RAM.", p.entries);
  w.Gauge("hearth_prefix_bytes", "RAM that they take.", p.bytes);
  w.Gauge("hearth_prefix_budget_bytes", "RAM that they may take.", p.budget_bytes);
  w.Gauge("hearth_prefix_disk_entries", "States on disk.", p.disk_entries);
  w.Gauge("hearth_prefix_disk_bytes", "Disk that they take.", p.disk_bytes);
  w.Counter("hearth_prefix_disk_hits_total", "Hits that were read from disk.", p.disk_hits);
  w.Counter("hearth_prefix_disk_errors_total", "States on disk that were of no use.",
            p.disk_errors);
}

void WriteHttp(const HttpCounters& h, MetricsWriter& w) {
  w.Gauge("hearth_http_connections", "Open connections.", h.connections_open);
  w.Gauge("hearth_http_streams", "Open event streams.", h.streams_open);
  w.Counter("hearth_http_connections_total", "Connections that were taken.", h.connections);
  w.Counter("hearth_http_connections_refused_total", "Connections beyond the limit.",
            h.connections_refused);
  w.Family("hearth_http_responses_total", "counter", "Responses, by class of their status.");
  for (size_t i = 0; i < h.responses.size(); ++i) {
    w.Value(Label("class", absl::StrCat(i + 1, "xx")), h.responses[i]);
  }
}

}  // namespace

std::string MetricsText(const TelemetrySnapshot& s) {
  MetricsWriter w;
  WriteServer(s, w);
  WriteRequests(s.engine.serve, w);
  WriteTimes(s.engine.serve, w);
  WriteWindows(s.engine.serve, w);
  WriteServices(s.engine.total(), w);
  WriteLayers(s.engine, w);
  WriteTiers(s.engine, w);
  WriteChannels(s, w);
  WriteMemory(s, w);
  WritePrefix(s.engine.prefix, w);
  WriteHttp(s.http, w);
  return w.Take();
}

}  // namespace hearth
