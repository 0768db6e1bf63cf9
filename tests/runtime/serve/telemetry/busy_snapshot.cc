// BusySnapshot(): made-up numbers that are like real ones.
#include <algorithm>

#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth {
namespace {

constexpr uint64_t kExpertBytes = 2'764'816;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

// Layers whose hits fall from the first to the last in waves; the last is the MTP layer.
std::vector<LedgerCounts> Layers(uint64_t scale) {
  std::vector<LedgerCounts> layers(49);
  for (uint32_t l = 0; l < layers.size(); ++l) {
    const uint64_t vram = 90 - l + (l * 37) % 23;
    const uint64_t ssd = l % 7 == 3 ? 14 : (l * 5) % 4;
    const uint64_t pcie = 6 + (l * 11) % 9;
    const uint64_t cpu = 130 - vram - ssd - pcie;
    const uint64_t counts[] = {vram * scale, pcie * scale, cpu * scale, ssd * scale};
    const int64_t ns_each[] = {9'000, 120'000, 75'000, 900'000};
    for (uint32_t s = 0; s < kServiceCount; ++s) {
      layers[l].services[s] = {.distinct = counts[s],
                               .entries = counts[s] * 3 / 2,
                               .bytes = counts[s] * kExpertBytes,
                               .ns = static_cast<int64_t>(counts[s]) * ns_each[s]};
    }
    layers[l].passes = 10 * scale;
  }
  return layers;
}

RequestInFlight Request(uint64_t id, RequestPhase phase, uint32_t prompt, uint32_t output,
                        int64_t age_ns, int64_t now_ns) {
  const bool reads = phase == RequestPhase::kReading;
  return {.id = id,
          .phase = phase,
          .prompt_tokens = prompt,
          .read_tokens = phase == RequestPhase::kQueued ? 0
                         : reads                        ? prompt / 3
                                                        : prompt,
          .output_tokens = output,
          .submitted_ns = now_ns - age_ns,
          .first_token_ns = output > 0 ? now_ns - age_ns + 640 * kMs : -1};
}

ServeCounters Serve(int64_t now_ns) {
  ServeCounters c = {.queued = 2, .reading = 1, .decoding = 5};
  c.shown_count = 8;
  using enum RequestPhase;
  c.shown[0] = Request(1201, kDecoding, 5120, 812, 31 * kSecond, now_ns);
  c.shown[1] = Request(1207, kDecoding, 96, 310, 14 * kSecond, now_ns);
  c.shown[2] = Request(1208, kDecoding, 2048, 255, 12 * kSecond, now_ns);
  c.shown[3] = Request(1211, kDecoding, 733, 41, 3 * kSecond, now_ns);
  c.shown[4] = Request(1212, kDecoding, 64, 12, 1200 * kMs, now_ns);
  c.shown[5] = Request(1213, kReading, 30'000, 0, 900 * kMs, now_ns);
  c.shown[6] = Request(1214, kQueued, 512, 0, 400 * kMs, now_ns);
  c.shown[7] = Request(1215, kQueued, 1024, 0, 100 * kMs, now_ns);
  c.submitted = 1215;
  c.finished = {0, 1001, 180, 25, 1};
  c.refused = {3, 1, 12, 0};
  c.prompt_tokens = 2'310'442;
  c.reused_tokens = 981'120;
  c.output_tokens = 402'118;
  c.queue_wait.Add(3 * kMs, 1100);
  c.queue_wait.Add(900 * kMs, 107);
  c.first_token.Add(420 * kMs, 700);
  c.first_token.Add(1800 * kMs, 490);
  c.first_token.Add(9 * kSecond, 17);
  c.token_gap.Add(24 * kMs, 380'000);
  c.token_gap.Add(80 * kMs, 20'911);
  c.request_time.Add(14 * kSecond, 1207);
  c.window_time.Add(61 * kMs, 90'000);
  c.overhead.Add(150'000, 89'900);
  c.overhead.Add(1'200'000, 100);
  c.windows_by_rows = {8'000, 12'000, 21'000, 30'500, 9'000, 5'000, 2'500, 2'000};
  c.prompt_passes = 9'100;
  c.drafted = {70'000, 64'000, 51'000};
  c.accepted = {57'400, 39'000, 21'400};
  return c;
}

}  // namespace

TelemetrySnapshot BusySnapshot() {
  TelemetrySnapshot s;
  s.uptime_ns = 3'734 * kSecond;
  s.facts = {.version = "0.1.0",
             .start_id = "5b1de20c3f00a917",
             .model = "qwen3.8-flash-next",
             .pack = "/packs/flash-next",
             .device = "NVIDIA RTX 4090",
             .expert_count = 512,
             .context_tokens_max = 131'072,
             .requests_max = 8,
             .queue_max = 64,
             .notes = {"made-up numbers"},
             .memory = {{.what = "dense weights", .bytes = uint64_t{5'200} << 20, .on_card = true},
                        {.what = "expert slots", .bytes = uint64_t{12'400} << 20, .on_card = true},
                        {.what = "sequences", .bytes = uint64_t{3'100} << 20, .on_card = true},
                        {.what = "RAM tier", .bytes = uint64_t{42} << 30},
                        {.what = "prefix cache", .bytes = uint64_t{4} << 30}},
             .ram_limit_bytes = uint64_t{60} << 30,
             .ram_limit_source = "/proc/meminfo",
             .card_bytes = uint64_t{24} << 30,
             .max_bytes_per_sec = {918e9, 25.1e9, 61.5e9, 6.9e9},
             .link_window_budget_bytes = uint64_t{512} << 20};
  s.engine.at_ns = s.uptime_ns;
  s.engine.serve = Serve(s.uptime_ns);
  s.engine.prefix = {.lookups = 1'212,
                     .hits = 804,
                     .reused_tokens = 981'120,
                     .stored = 2'400,
                     .evicted = 1'950,
                     .entries = 450,
                     .bytes = uint64_t{3'900} << 20,
                     .budget_bytes = uint64_t{4} << 30};
  s.engine.layers = Layers(9'000);
  s.engine.slots = {.present = true,
                    .slots = 4'608,
                    .used = 4'608,
                    .bytes = 4'640 * kExpertBytes,
                    .swaps = 18'422,
                    .swap_bytes = 18'422 * kExpertBytes,
                    .cancelled = 31,
                    .recent_count = 12};
  for (uint32_t i = 0; i < s.engine.slots.recent_count; ++i) {
    s.engine.slots.recent[i] = {.in = {LayerId(i * 17 % 48), ExpertId(i * 97 % 512)},
                                .out = {LayerId(i * 17 % 48), ExpertId(i * 61 % 512)},
                                .in_heat = 2.0F + static_cast<float>(i) / 8,
                                .out_heat = 0.5F,
                                .window = 90'012 - i * 3};
  }
  s.engine.slots.recent[11].out = ExpertKey();
  s.engine.regret = {
      .windows = 1'024, .distinct = 1'400'000, .hits = 868'000, .belady_hits = 1'036'000};
  s.engine.store = {.capacity_bytes = uint64_t{42} << 30,
                    .resident_count = 16'100,
                    .read_count = 61'000,
                    .read_bytes = 61'000 * kExpertBytes,
                    .lookahead_read_count = 9'000,
                    .lookahead_used_count = 6'700,
                    .exchange_count = 12'000,
                    .read_busy_ns = 70 * kSecond};
  s.http = {.connections_open = 9,
            .connections = 230,
            .responses = {0, 1'310, 0, 18, 1},
            .streams_open = 6};
  s.process = {.ram_bytes = uint64_t{47} << 30,
               .card_bytes = uint64_t{21'100} << 20,
               .disk_read_bytes = 61'000 * kExpertBytes};
  s.recent = {.span_ns = 10 * kSecond,
              .prompt_tokens = 9'120,
              .output_tokens = 1'174,
              .windows = 164,
              .layers = Layers(16),
              .bytes = {2'412'000'000'000, 61'000'000'000, 292'000'000'000, 21'000'000'000},
              .swaps = 42,
              .drafted = 430,
              .accepted = 281};
  s.peak_bytes_per_sec = {402e9, 11.2e9, 47e9, 6.1e9};
  for (uint32_t i = 0; i < 200; ++i) {
    HistoryPoint& point = s.history.emplace_back();
    const uint32_t wave = (i * 13) % 60 + (i / 40) * 15;
    point.output_tokens_per_sec = static_cast<float>(60 + wave);
    point.prompt_tokens_per_sec = static_cast<float>(i % 9 == 0 ? 5'000 : 100);
    point.first_token_sec = i % 4 == 1 ? -1 : 0.3F + static_cast<float>(i * 7 % 20) / 10;
    point.vram_share = 0.6F;
  }
  return s;
}

}  // namespace hearth
