// Where the thread that runs the passes leaves its counts for whoever reads them.
#pragma once

#include <cstdint>
#include <mutex>

#include "runtime/engine/model_runner.h"
#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth {

// Thread-safe; holds its lock for a copy of about 20 KB.
class TelemetryBoard {
 public:
  void Publish(const EngineCounts& counts);  // allocates the first time only
  EngineCounts Read() const;                 // all 0 before the first
 private:
  mutable std::mutex mutex_;
  EngineCounts counts_;
};

// What a runner's experts have to tell, into `counts`; `serve` and `prefix` are left alone. Between
// windows, on the thread that runs them; allocates where counts.layers has to grow only.
void ReadRunner(const ModelRunner& runner, EngineCounts& counts);

// Publishes, from the thread that runs the passes.
class EngineTelemetry {
 public:
  // All outlive this.
  EngineTelemetry(const ModelRunner& runner, Clock& clock, TelemetryBoard& board)
      : runner_(runner), clock_(clock), board_(board) {}

  // After every window. Does something every 100 ms at most.
  void AfterWindow(const ServeCounters& serve, const PrefixCounters& prefix);
  // At once: before the thread waits for work, and after what changes gauges while it waits.
  void Publish(const ServeCounters& serve, const PrefixCounters& prefix);

 private:
  const ModelRunner& runner_;
  Clock& clock_;
  TelemetryBoard& board_;
  EngineCounts counts_;
  int64_t published_ns_ = INT64_MIN;
};

}  // namespace hearth
