// Times windows of a loaded model and holds each against the floor of its bytes: what every tier
// had to read, over what its memory was measured to give in the same run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/policy/route_trace.h"
#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/clock.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/window_tracer.h"
#include "runtime/plan/ledger.h"

namespace hearth::cli {

// Bytes per second.
struct MemoryRates {
  double dram = 0;  // all workers reading
  double card = 0;  // a card's memory; 0: there is none
  double link = 0;  // large copies from pinned memory to the card
};
absl::StatusOr<double> MeasureLinkRate(const GpuInfo& gpu);

// The least seconds that a layer's experts take: card, link and host run side by side, and what is
// uploaded is read from the same memory as what the CPU computes. Without a card all is the CPU's.
double ExpertFloorSec(const LedgerCounts& layer, const MemoryRates& rates);

// A trace's routes for a model of any number of layers: layer l takes column l % columns, one
// segment of tokens later for every time round, so that the copies are not in step.
class TraceRoutes final : public RouteSource {
 public:
  static constexpr uint64_t kSegmentTokens = 2048;
  explicit TraceRoutes(const RouteTrace& trace) : trace_(trace) {}  // outlives this
  // InvalidArgument when the trace is not of experts and ranks like these.
  absl::Status Check(uint32_t expert_count, uint32_t ranks) const;
  void set_token(uint64_t token) { token_ = token; }  // of the next window's first row
  std::span<const uint32_t> RoutesOf(LayerId layer, uint32_t rows, uint32_t ranks) override;
  // How often each expert of a layer is chosen by the first `token_count` tokens.
  std::vector<float> Sightings(LayerId layer, uint64_t token_count, uint32_t expert_count) const;

 private:
  std::span<const uint16_t> Chosen(LayerId layer, uint64_t token) const;
  const RouteTrace& trace_;
  uint64_t token_ = 0;
  std::vector<uint32_t> routes_;  // of the call at hand
};

struct WindowTimes {
  uint32_t rows = 0;
  uint32_t window_count = 0;
  double median_sec = 0;  // of a window, its commit included
  double floor_sec = 0;   // median, of the same windows
  double dense_floor_sec = 0;
  LedgerCounts served;  // all of the windows
  double hit_rate() const { return served.share(Service::kVram); }
};

struct WindowPlanOptions {
  uint32_t rows = 1;
  uint32_t windows = 64;
  uint32_t warm_up_windows = 0;
  WindowTracer* tracer = nullptr;  // of those that are measured; null: none
};

// Runs windows of one sequence, every row kept, whose routes follow the trace from `token` on,
// which moves with them.
absl::StatusOr<WindowTimes> TimeWindows(ModelRunner& runner, TraceRoutes& routes, Clock& clock,
                                        const MemoryRates& rates, const WindowPlanOptions& options,
                                        uint64_t& token);

}  // namespace hearth::cli
