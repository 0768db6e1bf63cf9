#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth {
namespace {

// 1, 2, 3...: no two members are alike.
struct Numbers {
  uint64_t next = 1;
  operator uint64_t() { return next++; }  // NOLINT: reads as a number on purpose
  uint32_t u32() { return static_cast<uint32_t>(next++); }
  int64_t ns() { return static_cast<int64_t>(next++) * 1'000'000; }
};

TimeHistogram HistogramOf(Numbers& n) {
  TimeHistogram h;
  for (uint64_t& count : h.counts) count = n;
  h.sum_ns = n.ns();
  return h;
}

std::vector<LedgerCounts> LayersOf(Numbers& n, size_t count) {
  std::vector<LedgerCounts> layers(count);
  for (LedgerCounts& layer : layers) {
    for (ServiceTotals& totals : layer.services) {
      totals = {.distinct = n, .entries = n, .bytes = n, .ns = n.ns()};
    }
    layer.wait_ns = n.ns();
    layer.passes = n;
  }
  return layers;
}

ServeCounters ServeOf(Numbers& n) {
  ServeCounters c;
  c.queued = n.u32();
  c.reading = n.u32();
  c.decoding = n.u32();
  c.submitted = n;
  for (uint32_t f = 1; f < kFinishReasonCount; ++f) c.finished[f] = n;
  for (uint64_t& refused : c.refused) refused = n;
  c.prompt_tokens = n;
  c.reused_tokens = n;
  c.output_tokens = n;
  for (TimeHistogram* h : {&c.queue_wait, &c.first_token, &c.token_gap, &c.request_time,
                           &c.window_time, &c.overhead}) {
    *h = HistogramOf(n);
  }
  for (uint64_t& rows : c.windows_by_rows) rows = n;
  c.prompt_passes = n;
  c.idle_ns = n.ns();
  for (uint64_t& accepted : c.accepted) accepted = n;
  for (uint64_t& drafted : c.drafted) drafted = n;
  c.shown_count = 3;
  const RequestPhase phases[] = {RequestPhase::kDecoding, RequestPhase::kReading,
                                 RequestPhase::kQueued};
  for (uint32_t i = 0; i < c.shown_count; ++i) {
    c.shown[i] = {.id = n,
                  .phase = phases[i],
                  .prompt_tokens = n.u32(),
                  .reused_tokens = n.u32(),
                  .read_tokens = n.u32(),
                  .output_tokens = i == 0 ? n.u32() : 0,
                  .submitted_ns = n.ns()};
  }
  c.shown[0].first_token_ns = n.ns();
  return c;
}

}  // namespace

TelemetrySnapshot FullSnapshot() {
  Numbers n;
  TelemetrySnapshot s;
  s.facts = {.version = "1.2.3",
             .start_id = "0123456789abcdef",
             .started_unix_ms = 1'700'000'000'000,
             .model = "a \"model\"\n\\ and more",
             .pack = "/somewhere/pack",
             .device = "a card",
             .expert_count = n.u32(),
             .context_tokens_max = n.u32(),
             .requests_max = n.u32(),
             .queue_max = n.u32(),
             .notes = {"note one", "note two"},
             .memory = {{.what = "slots", .bytes = n, .on_card = true},
                        {.what = "experts", .bytes = n, .on_card = false}},
             .ram_limit_bytes = n,
             .ram_limit_source = "/proc/meminfo",
             .card_bytes = n,
             .max_bytes_per_sec = {1e12, 25e9, 60e9, std::nullopt},
             .link_window_budget_bytes = n};
  s.uptime_ns = 3'600'000'000'000;
  s.engine.at_ns = s.uptime_ns;
  s.engine.serve = ServeOf(n);
  s.engine.prefix = {n, n, n, n, n, n, n, n, n, n, n, n, n};
  s.engine.layers = LayersOf(n, 3);
  s.engine.slots = {.present = true,
                    .slots = n,
                    .used = n,
                    .bytes = n,
                    .swaps = n,
                    .swap_bytes = n,
                    .cancelled = n,
                    .pinned = true,
                    .recent_count = 2};
  s.engine.slots.recent[0] = {.in = {LayerId(n.u32()), ExpertId(n.u32())},
                              .out = {LayerId(n.u32()), ExpertId(n.u32())},
                              .in_heat = 2.5F,
                              .out_heat = 0.25F,
                              .window = n};
  s.engine.slots.recent[1] = {.in = {LayerId(n.u32()), ExpertId(n.u32())}, .window = n};
  s.engine.regret = {.windows = n, .distinct = 4000, .hits = 1000, .belady_hits = 3000};
  s.engine.store = {.capacity_bytes = n,
                    .resident_count = n,
                    .read_count = n,
                    .read_bytes = n,
                    .lookahead_read_count = n,
                    .lookahead_used_count = n,
                    .exchange_count = n,
                    .major_fault_count = n,
                    .read_busy_ns = n.ns()};
  s.engine.dense_bytes = n;
  s.http = {.connections_open = n, .connections = n, .connections_refused = n};
  for (uint64_t& responses : s.http.responses) responses = n;
  s.http.streams_open = n;
  s.process = {.ram_bytes = n, .card_bytes = n, .disk_read_bytes = n};
  s.recent = {.span_ns = 10'000'000'000,
              .prompt_tokens = n,
              .output_tokens = n,
              .windows = n,
              .layers = LayersOf(n, 3),
              .bytes = {n, n, n, n},
              .swaps = n,
              .drafted = n,
              .accepted = n,
              .first_token = HistogramOf(n),
              .token_gap = HistogramOf(n),
              .overhead = HistogramOf(n)};
  s.peak_bytes_per_sec = {2e11, 2e10, 3e10, 4e9};
  s.history = {{.output_tokens_per_sec = 12.5F, .prompt_tokens_per_sec = 400.5F},
               {.output_tokens_per_sec = 1.25F, .first_token_sec = 0.125F, .vram_share = 0.5F}};
  return s;
}

TelemetrySnapshot EmptySnapshot() {
  TelemetrySnapshot s;
  s.facts.start_id = "0000000000000001";
  s.engine.layers.resize(2);
  s.engine.slots.present = true;
  return s;
}

TelemetrySnapshot HandCountedSnapshot() {
  TelemetrySnapshot s = EmptySnapshot();
  WindowPlan plan;
  LedgerCounts counts;
  const Service services[] = {Service::kVram, Service::kVram, Service::kVram, Service::kCpu,
                              Service::kCpu,  Service::kSsd,  Service::kSsd,  Service::kSsd};
  for (uint32_t i = 0; i < 8; ++i) {
    plan.experts.push_back({ExpertId(i), services[i], i, 1});
    plan.entries.push_back({0, i});
    counts.of(services[i]) += {.distinct = 1, .entries = 1, .bytes = 1000, .ns = 250};
  }
  Ledger ledger(2);
  ledger.Add(LayerId(0), plan, counts);
  s.engine.layers.assign(ledger.layers().begin(), ledger.layers().end());
  // Three that were needed, one of them ahead of time, and one that was not needed.
  s.engine.store = {
      .read_count = 4, .read_bytes = 4000, .lookahead_read_count = 2, .lookahead_used_count = 1};
  return s;
}

}  // namespace hearth
