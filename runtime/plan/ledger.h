// The account of who served which expert: every distinct expert of every pass in exactly one
// service. Per layer and in total; totals are sums, never counted apart.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

inline constexpr uint32_t kServiceCount = 4;
std::string_view ServiceName(Service service);  // "vram", "pcie", "cpu", "ssd"

struct ServiceTotals {
  uint64_t distinct = 0;  // experts
  uint64_t entries = 0;   // (row, rank) pairs they served
  uint64_t bytes = 0;     // blobs read for them
  // Worker time spent on them, and for pcie and ssd the time until they came; of a card's own
  // work, all of it under vram.
  int64_t ns = 0;
  ServiceTotals& operator+=(const ServiceTotals& other);
  ServiceTotals& operator-=(const ServiceTotals& other);
  bool operator==(const ServiceTotals&) const = default;
};

struct LedgerCounts {
  std::array<ServiceTotals, kServiceCount> services{};  // by Service
  int64_t wait_ns = 0;  // workers had nothing to do before an expert came
  uint64_t passes = 0;  // layers that passes went through: in a total, passes x layers

  ServiceTotals& of(Service service) { return services[static_cast<uint32_t>(service)]; }
  const ServiceTotals& of(Service service) const {
    return services[static_cast<uint32_t>(service)];
  }
  ServiceTotals total() const;
  // Distinct experts served by `service`, of all; 0 when there are none. The four add up to 1.
  double share(Service service) const;
  LedgerCounts& operator+=(const LedgerCounts& other);
  LedgerCounts& operator-=(const LedgerCounts& other);  // of a later reading: what came in between
};

// Not thread-safe.
class Ledger {
 public:
  explicit Ledger(uint32_t layer_count) : layers_(layer_count) {}

  // What one layer of one pass did; counts.passes is not read, it is one. Every expert and entry of
  // `plan` must be in `counts`, each once: a bug stops here.
  void Add(LayerId layer, const WindowPlan& plan, const LedgerCounts& counts);
  // Time of a service of a layer that is known only after the layer was added: a card's.
  void AddTime(LayerId layer, Service service, int64_t ns) {
    layers_[layer.value].of(service).ns += ns;
  }
  std::span<const LedgerCounts> layers() const { return layers_; }
  LedgerCounts total() const;

 private:
  std::vector<LedgerCounts> layers_;
};

}  // namespace hearth
