// What a server tells of itself at one moment: what does not change (TelemetryFacts), what the
// thread that runs the passes has counted (EngineCounts), and what follows from both over time.
// TELEMETRY.md says what each number means and how it looks as JSON and as Prometheus text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/plan/ledger.h"
#include "runtime/serve/telemetry/serve_counters.h"

namespace hearth {

// The memories that bound a window's speed.
enum class Channel : uint8_t { kCard, kLink, kDram, kDrive };
inline constexpr uint32_t kChannelCount = 4;
const char* ChannelName(Channel channel);  // "card", "link", "dram", "drive"

struct TelemetryFacts {
  std::string version;   // of the program
  std::string start_id;  // another one after every start
  int64_t started_unix_ms = 0;
  std::string model;   // as the API calls it
  std::string pack;    // folder
  std::string device;  // "cpu" or the card's name
  uint32_t expert_count = 0;
  uint32_t context_tokens_max = 0;
  uint32_t requests_max = 0;  // that are computed at once; 0: not said
  uint32_t queue_max = 0;
  std::vector<std::string> notes;

  std::vector<MemoryItem> memory;  // the plan
  uint64_t ram_limit_bytes = 0;    // 0: none known
  std::string ram_limit_source;
  uint64_t card_bytes = 0;  // the whole card; 0: no card

  // By Channel, what was measured before serving began; none: not measured.
  std::array<std::optional<double>, kChannelCount> max_bytes_per_sec{};
  uint64_t link_window_budget_bytes = UINT64_MAX;  // uploads of one window; UINT64_MAX: no budget
};

inline constexpr uint32_t kSwapsShownMax = 32;

struct SlotTelemetry {
  bool present = false;  // false: no slots, and all else is 0
  uint64_t slots = 0;    // spares not counted
  uint64_t used = 0;
  uint64_t bytes = 0;  // of all, spares included
  uint64_t swaps = 0;
  uint64_t swap_bytes = 0;
  uint64_t cancelled = 0;
  bool pinned = false;
  uint32_t recent_count = 0;
  std::array<LandedSwap, kSwapsShownMax> recent;  // newest first
};

struct RegretTelemetry {
  uint64_t windows = 0;
  uint64_t distinct = 0;
  uint64_t hits = 0;
  uint64_t belady_hits = 0;
};

// Of one moment between two windows. Copying it into one that has been used before allocates
// nothing.
struct EngineCounts {
  int64_t at_ns = 0;  // of the clock
  ServeCounters serve;
  PrefixCounters prefix;
  std::vector<LedgerCounts> layers;  // the trunk's and the MTP layer's
  SlotTelemetry slots;
  RegretTelemetry regret;
  StoreStats store;
  uint64_t dense_bytes = 0;  // of dense weights that passes had to read

  LedgerCounts total() const;
};

// Bytes that crossed a channel since the start. What the cpu computes it reads from DRAM, and what
// is uploaded, too; dense weights are the card's where there is one.
uint64_t ChannelBytes(const EngineCounts& counts, Channel channel, bool has_card);

struct HttpCounters {
  uint64_t connections_open = 0;
  uint64_t connections = 0;
  uint64_t connections_refused = 0;
  std::array<uint64_t, 5> responses{};  // by class: [0] 1xx ... [4] 5xx
  uint64_t streams_open = 0;
};

// Of this process, by the kernel; none: not known.
struct ProcessUse {
  std::optional<uint64_t> ram_bytes;        // resident
  std::optional<uint64_t> card_bytes;       // of the card, by anybody
  std::optional<uint64_t> disk_read_bytes;  // that this process had read
};

// Since some seconds ago.
struct RecentCounts {
  int64_t span_ns = 0;  // 0: nothing is known yet, and all else is 0
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t windows = 0;
  std::vector<LedgerCounts> layers;
  std::array<uint64_t, kChannelCount> bytes{};
  uint64_t swaps = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  TimeHistogram first_token;
  TimeHistogram token_gap;
  TimeHistogram overhead;
  LedgerCounts total() const;
};

inline constexpr uint32_t kHistoryPointsMax = 240;

// One second of the past.
struct HistoryPoint {
  float output_tokens_per_sec = 0;
  float prompt_tokens_per_sec = 0;
  float first_token_sec = -1;  // mean of those that came in it; -1: none did
  float vram_share = -1;       // of its distinct experts; -1: there were none
};

struct TelemetrySnapshot {
  TelemetryFacts facts;
  int64_t uptime_ns = 0;
  EngineCounts engine;
  HttpCounters http;
  ProcessUse process;
  RecentCounts recent;
  std::array<double, kChannelCount> peak_bytes_per_sec{};  // of any second so far
  std::vector<HistoryPoint> history;                       // oldest first
};

}  // namespace hearth
