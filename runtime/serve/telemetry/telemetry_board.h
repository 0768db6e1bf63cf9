// Where the thread that runs the passes leaves its counts for whoever reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "runtime/engine/model_runner.h"
#include "runtime/serve/telemetry/round_observer.h"
#include "runtime/serve/telemetry/telemetry_snapshot.h"
#include "runtime/serve/telemetry/trace_requests.h"

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

// Publishes after rounds, every 100 ms at most, and before the thread waits for work; takes traces.
class EngineTelemetry final : public RoundObserver {
 public:
  struct Deps {  // all outlive this
    ModelRunner& runner;
    TelemetryBoard& board;
    TraceRequests* traces = nullptr;  // null: none are taken
    std::function<PrefixCounters()> prefix =
        {};  // on the thread that runs the passes; may be empty
  };
  explicit EngineTelemetry(Deps deps) : deps_(std::move(deps)) {}

  void BeforeRound() override;
  void AfterRound(const ServeCounters& counters) override;
  void BeforeIdle(const ServeCounters& counters) override;

 private:
  void Publish(const ServeCounters& counters, int64_t now_ns);

  const Deps deps_;
  EngineCounts counts_;
  int64_t published_ns_ = INT64_MIN;
};

}  // namespace hearth
