// What planning and the residency table cost a layer of a window: 48 layers of 512 experts, 9,830
// slots, 40 distinct experts of which some miss. Each iteration is a whole window; the counter is
// nanoseconds per layer.
#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "cache/slots/slot_cache.h"
#include "runtime/base/prng.h"
#include "runtime/plan/request_ledger.h"
#include "runtime/plan/service_choice.h"
#include "runtime/plan/window_plan.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 48;
constexpr uint32_t kExperts = 512;
constexpr uint32_t kRows = 4;
constexpr uint32_t kRanks = 10;
constexpr uint32_t kWindows = 64;  // of routes, made beforehand
constexpr uint64_t kBlobBytes = 2'764'816;

// Routes of 40 distinct experts: a skewed draw, more of low numbers, another order in each layer.
std::vector<uint32_t> MakeRoutes() {
  Prng prng(1);
  std::vector<uint32_t> routes(size_t{kWindows} * kLayers * kRows * kRanks);
  for (size_t at = 0; at < routes.size(); at += kRows * kRanks) {
    std::vector<uint8_t> taken(kExperts, 0);
    const auto layer = static_cast<uint32_t>(at / (kRows * kRanks) % kLayers);
    for (size_t i = 0; i < kRows * kRanks;) {
      const double u = prng.Uniform();
      const auto e = static_cast<uint32_t>(u * u * kExperts + 37 * layer) % kExperts;
      if (taken[e] != 0) continue;
      taken[e] = 1;
      routes[at + i++] = e;
    }
  }
  return routes;
}

class LayerPlanner {  // what an engine does for each layer, bytes left out
 public:
  explicit LayerPlanner(SlotCache& cache) : cache_(cache), residency_(kExperts), heat_(kExperts) {
    plan_.Reserve(kRows, kRanks, kExperts);
    wanted_.resize(kExperts);
    sightings_.resize(kExperts);
    leases_.resize(kExperts);
  }

  void Run(LayerId layer, std::span<const uint32_t> routes) {
    GroupRoutes({.expert = routes, .rows = kRows, .ranks = kRanks, .expert_count = kExperts},
                plan_);
    const size_t count = plan_.experts.size();
    for (size_t i = 0; i < count; ++i) {
      const ExpertKey key{layer, plan_.experts[i].expert};
      leases_[i] = cache_.Acquire(key);
      residency_[i] = leases_[i].valid() ? Residency::kVram : Residency::kRam;
      sightings_[i] = {key.expert, plan_.experts[i].entry_count};
    }
    cache_.Observe({.layer = layer, .experts = std::span(sightings_).first(count)});
    const std::span<const Swap> proposed = cache_.Propose();
    swap_count_ = proposed.size();
    std::copy(proposed.begin(), proposed.end(), swaps_.begin());
    for (size_t i = 0; i < count; ++i) {
      const ExpertKey key{layer, plan_.experts[i].expert};
      heat_[i] = residency_[i] == Residency::kRam ? cache_.Heat(key) : 0;
      wanted_[i] = 0;
      for (size_t s = 0; s < swap_count_; ++s) wanted_[i] |= swaps_[s].in == key ? 1 : 0;
    }
    upload_count_ += ChooseServices(
        std::span(residency_).first(count),
        {.heat = std::span(heat_).first(count), .wanted = std::span(wanted_).first(count)},
        {.pcie_bytes_left = UINT64_MAX, .blob_bytes = kBlobBytes, .uploads_max = 8},
        {.cpu_expert_ns = 90'000,
         .cpu_row_ns = 20'000,
         .pcie_expert_ns = 110'000,
         .pcie_layer_ns = 20'000,
         .dram_expert_ns = 50'000},
        plan_);
    for (size_t s = 0; s < swap_count_; ++s) {
      cache_.BeginSwap(swaps_[s]);
      const absl::StatusOr<SlotRef> slot = cache_.BeginFill(swaps_[s].in);
      if (slot.ok()) {
        cache_.Land(*slot, swaps_[s]);
      } else {
        cache_.CancelSwap(swaps_[s]);
      }
    }
    for (size_t i = 0; i < count; ++i) leases_[i] = SlotLease();
  }
  uint64_t upload_count() const { return upload_count_; }

 private:
  SlotCache& cache_;
  WindowPlan plan_;
  std::vector<Residency> residency_;
  std::vector<float> heat_;
  std::vector<uint8_t> wanted_;
  std::vector<ExpertSighting> sightings_;
  std::vector<SlotLease> leases_;
  std::array<Swap, 2> swaps_;
  size_t swap_count_ = 0;
  uint64_t upload_count_ = 0;
};

void PlanAndCache(benchmark::State& state, const std::string& policy) {
  absl::StatusOr<std::unique_ptr<SlotCache>> cache =
      SlotCache::Create({.blob_bytes = std::vector<uint64_t>(kLayers, kBlobBytes),
                         .expert_count = kExperts,
                         .budget = {.share = 0.4},
                         .policy = policy});
  if (!cache.ok()) {
    state.SkipWithError("create");
    return;
  }
  const std::vector<uint32_t> routes = MakeRoutes();
  LayerPlanner planner(**cache);
  uint32_t window = 0;
  const auto run_window = [&] {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const size_t at = (size_t{window} * kLayers + layer) * kRows * kRanks;
      planner.Run(LayerId(layer), std::span(routes).subspan(at, kRows * kRanks));
    }
    (*cache)->EndWindow(kRows);
    window = (window + 1) % kWindows;
  };
  for (int i = 0; i < 300; ++i) run_window();  // until the slots are full
  const uint64_t swaps_before = (*cache)->stats().swap_count;
  for (auto _ : state) run_window();
  state.counters["layer"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kLayers),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["swaps/window"] =
      static_cast<double>((*cache)->stats().swap_count - swaps_before) /
      static_cast<double>(state.iterations());
}
BENCHMARK_CAPTURE(PlanAndCache, two_scale, "two-scale")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PlanAndCache, lru, "lru")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PlanAndCache, decay, "decay")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
