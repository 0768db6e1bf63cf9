#include "runtime/serve/telemetry/telemetry_sampler.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr auto kSampleEvery = std::chrono::seconds(1);
constexpr double kNsPerSec = 1e9;

uint64_t DraftSum(const std::array<uint64_t, kDraftsMax>& by_position) {
  uint64_t sum = 0;
  for (const uint64_t n : by_position) sum += n;
  return sum;
}

uint64_t WindowSum(const ServeCounters& serve) {
  uint64_t sum = 0;
  for (const uint64_t n : serve.windows_by_rows) sum += n;
  return sum;
}

// Whether slots are a card's own: host memory that plays one is DRAM.
bool HasCard(const TelemetryFacts& facts) { return facts.card_bytes != 0; }

RecentCounts Difference(const EngineCounts& before, const EngineCounts& now, bool has_card) {
  RecentCounts recent = {.span_ns = now.at_ns - before.at_ns,
                         .prompt_tokens = now.serve.prompt_tokens - before.serve.prompt_tokens,
                         .output_tokens = now.serve.output_tokens - before.serve.output_tokens,
                         .windows = WindowSum(now.serve) - WindowSum(before.serve),
                         .layers = now.layers,
                         .swaps = now.slots.swaps - before.slots.swaps,
                         .drafted = DraftSum(now.serve.drafted) - DraftSum(before.serve.drafted),
                         .accepted = DraftSum(now.serve.accepted) - DraftSum(before.serve.accepted),
                         .first_token = now.serve.first_token.Since(before.serve.first_token),
                         .token_gap = now.serve.token_gap.Since(before.serve.token_gap),
                         .overhead = now.serve.overhead.Since(before.serve.overhead)};
  for (size_t l = 0; l < std::min(before.layers.size(), now.layers.size()); ++l) {
    recent.layers[l] -= before.layers[l];
  }
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    const auto channel = static_cast<Channel>(c);
    recent.bytes[c] =
        ChannelBytes(now, channel, has_card) - ChannelBytes(before, channel, has_card);
  }
  return recent;
}

HistoryPoint PointOf(const RecentCounts& second) {
  const double seconds = static_cast<double>(second.span_ns) / kNsPerSec;
  HistoryPoint point = {.output_tokens_per_sec =
                            static_cast<float>(static_cast<double>(second.output_tokens) / seconds),
                        .prompt_tokens_per_sec = static_cast<float>(
                            static_cast<double>(second.prompt_tokens) / seconds)};
  if (const auto mean = second.first_token.Mean()) {
    point.first_token_sec = static_cast<float>(*mean);
  }
  const LedgerCounts total = second.total();
  if (total.total().distinct != 0) {
    point.vram_share = static_cast<float>(total.share(Service::kVram));
  }
  return point;
}

// The number after `key` in a file of "key: number" lines.
std::optional<uint64_t> NumberIn(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value;
  }
  return std::nullopt;
}

}  // namespace

void TelemetryHistory::Add(int64_t now_ns, const EngineCounts& counts) {
  if (!samples_.empty()) {
    const Sample& last = samples_[(next_ + samples_.size() - 1) % samples_.size()];
    if (now_ns <= last.at_ns) return;
    Sample now = {.at_ns = now_ns, .counts = counts};
    now.counts.at_ns = now_ns;
    AddPoint(Difference(last.counts, now.counts, has_card_));
  }
  if (samples_.size() < kSamples) {
    samples_.push_back({.at_ns = now_ns, .counts = counts});
    samples_.back().counts.at_ns = now_ns;
    return;
  }
  samples_[next_].at_ns = now_ns;
  samples_[next_].counts = counts;
  samples_[next_].counts.at_ns = now_ns;
  next_ = (next_ + 1) % kSamples;
}

void TelemetryHistory::AddPoint(const RecentCounts& second) {
  const double seconds = static_cast<double>(second.span_ns) / kNsPerSec;
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    peak_[c] = std::max(peak_[c], static_cast<double>(second.bytes[c]) / seconds);
  }
  if (points_.size() < kHistoryPointsMax) {
    points_.push_back(PointOf(second));
  } else {
    points_[next_point_] = PointOf(second);
    next_point_ = (next_point_ + 1) % kHistoryPointsMax;
  }
}

void TelemetryHistory::Describe(TelemetrySnapshot& snapshot) const {
  snapshot.peak_bytes_per_sec = peak_;
  snapshot.history.assign(points_.begin() + static_cast<ptrdiff_t>(next_point_), points_.end());
  snapshot.history.insert(snapshot.history.end(), points_.begin(),
                          points_.begin() + static_cast<ptrdiff_t>(next_point_));
  snapshot.recent = {};
  if (samples_.size() < 2) return;
  const Sample& first = samples_[next_];
  const Sample& last = samples_[(next_ + samples_.size() - 1) % samples_.size()];
  snapshot.recent = Difference(first.counts, last.counts, has_card_);
}

ProcessUse ReadProcessUse() {
  ProcessUse use;
  if (const auto kib = NumberIn("/proc/self/status", "VmRSS:")) use.ram_bytes = *kib * 1024;
  use.disk_read_bytes = NumberIn("/proc/self/io", "read_bytes:");
  return use;
}

TelemetrySampler::TelemetrySampler(const Deps& deps, TelemetryFacts facts)
    : deps_(deps),
      facts_(std::move(facts)),
      started_ns_(deps.clock.NowNs()),
      history_(HasCard(facts_)) {}

TelemetrySampler::~TelemetrySampler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

EngineCounts TelemetrySampler::Counts() const {
  EngineCounts counts = deps_.board.Read();
  if (deps_.serve) counts.serve = deps_.serve();
  return counts;
}

TelemetrySnapshot TelemetrySampler::Snapshot() const {
  TelemetrySnapshot snapshot;
  snapshot.facts = facts_;
  snapshot.engine = Counts();
  if (deps_.http) snapshot.http = deps_.http();
  const int64_t now_ns = deps_.clock.NowNs();
  snapshot.engine.at_ns = now_ns;
  snapshot.uptime_ns = now_ns - started_ns_;
  const std::lock_guard lock(mutex_);
  snapshot.process = process_;
  history_.Describe(snapshot);
  return snapshot;
}

void TelemetrySampler::Sample() {
  const EngineCounts counts = Counts();
  ProcessUse process = deps_.process ? deps_.process() : ProcessUse();
  const std::lock_guard lock(mutex_);
  process_ = process;
  history_.Add(deps_.clock.NowNs(), counts);
}

void TelemetrySampler::Start() {
  HEARTH_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Main(); });
}

void TelemetrySampler::Main() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    Sample();
    lock.lock();
    wake_.wait_for(lock, kSampleEvery, [this] { return stopping_; });
  }
}

}  // namespace hearth
