#include "runtime/serve/telemetry/telemetry_board.h"

#include <algorithm>

#include "runtime/engine/regret_gauge.h"

namespace hearth {
namespace {

constexpr int64_t kPublishEveryNs = 100'000'000;

SlotTelemetry ReadSlots(const SlotCache& cache) {
  SlotTelemetry slots = {.present = true};
  for (uint32_t p = 0; p < cache.pools().size(); ++p) slots.slots += cache.pools()[p].slot_count;
  const SlotCacheStats stats = cache.stats();
  slots.used = stats.resident_count;
  slots.bytes = cache.bytes();
  slots.swaps = stats.swap_count;
  slots.swap_bytes = stats.swap_bytes;
  slots.cancelled = stats.cancelled_count;
  slots.pinned = stats.pinned;
  slots.recent_count = static_cast<uint32_t>(cache.RecentSwaps(slots.recent));
  return slots;
}

}  // namespace

void TelemetryBoard::Publish(const EngineCounts& counts) {
  const std::lock_guard lock(mutex_);
  counts_ = counts;
}

EngineCounts TelemetryBoard::Read() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ReadRunner(const ModelRunner& runner, EngineCounts& counts) {
  const ExpertPlacement& experts = runner.experts();
  const std::span<const LedgerCounts> layers = experts.tiers().ledger().layers();
  counts.layers.assign(layers.begin(), layers.end());
  counts.slots = experts.slots() == nullptr ? SlotTelemetry() : ReadSlots(*experts.slots());
  counts.regret = {};
  if (const RegretGauge* gauge = experts.regret(); gauge != nullptr) {
    const Regret regret = gauge->latest();
    counts.regret = {.windows = regret.window_count,
                     .distinct = regret.distinct,
                     .hits = regret.hits,
                     .belady_hits = regret.belady_hits};
  }
  counts.store = experts.store().stats();
  counts.dense_bytes = runner.bytes_read().dense;
}

void EngineTelemetry::BeforeRound() {
  if (deps_.traces != nullptr) deps_.traces->BeforeRound(deps_.runner);
}

void EngineTelemetry::AfterRound(const ServeCounters& counters) {
  if (deps_.traces != nullptr) deps_.traces->AfterRound(deps_.runner);
  const int64_t now_ns = deps_.runner.clock().NowNs();
  if (published_ns_ == INT64_MIN || now_ns - published_ns_ >= kPublishEveryNs) {
    Publish(counters, now_ns);
  }
}

void EngineTelemetry::BeforeIdle(const ServeCounters& counters) {
  if (deps_.traces != nullptr) deps_.traces->BeforeIdle(deps_.runner);
  Publish(counters, deps_.runner.clock().NowNs());
}

void EngineTelemetry::Publish(const ServeCounters& counters, int64_t now_ns) {
  counts_.at_ns = published_ns_ = now_ns;
  counts_.serve = counters;
  if (deps_.prefix) counts_.prefix = deps_.prefix();
  ReadRunner(deps_.runner, counts_);
  deps_.board.Publish(counts_);
}

}  // namespace hearth
