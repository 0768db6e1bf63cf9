// Looks at the board once a second and keeps what a single reading cannot tell: rates, peaks and
// the last minutes.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/serve/telemetry/telemetry_board.h"
#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth {

// Rates over the last ten samples. Pure bookkeeping; not thread-safe.
class TelemetryHistory {
 public:
  // Whether slots and dense weights are a card's.
  explicit TelemetryHistory(bool has_card) : has_card_(has_card) {}
  // Time does not go back. A second reading at the same time is left out.
  void Add(int64_t now_ns, const EngineCounts& counts);
  // Fills recent, peak_bytes_per_sec and history.
  void Describe(TelemetrySnapshot& snapshot) const;

 private:
  static constexpr size_t kSamples = 11;  // ten seconds between the first and the last
  struct Sample {
    int64_t at_ns = 0;
    EngineCounts counts;
  };
  void AddPoint(const RecentCounts& second);

  const bool has_card_;
  std::vector<Sample> samples_;  // a ring once it is full
  size_t next_ = 0;
  std::vector<HistoryPoint> points_;
  size_t next_point_ = 0;
  std::array<double, kChannelCount> peak_{};
};

// What the kernel says of this process; what cannot be read is none.
ProcessUse ReadProcessUse();

class TelemetrySampler {
 public:
  struct Deps {
    const TelemetryBoard& board;  // with clock: outlive this
    Clock& clock;
    // Called from this class's thread and Snapshot()'s callers; may be empty. `serve`: what the
    // scheduler has counted by now, in place of what was published after its last pass.
    std::function<ServeCounters()> serve = nullptr;
    std::function<HttpCounters()> http = nullptr;
    std::function<ProcessUse()> process = nullptr;
  };
  TelemetrySampler(const Deps& deps, TelemetryFacts facts);
  ~TelemetrySampler();

  // From any thread.
  TelemetrySnapshot Snapshot() const;
  // What the thread does every second; public for tests and for those that have no thread.
  void Sample();
  void Start();  // the thread; at most once

 private:
  void Main();
  EngineCounts Counts() const;

  const Deps deps_;
  const TelemetryFacts facts_;
  const int64_t started_ns_;
  mutable std::mutex mutex_;  // guards what follows
  TelemetryHistory history_;
  ProcessUse process_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace hearth
