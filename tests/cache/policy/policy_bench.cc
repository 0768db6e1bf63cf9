// What a policy costs a layer of a window: Observe, Propose, Begin and Land at 40 distinct experts
// of 48 x 512 with 40% of them resident; EndWindow's share is in the per-window number.
#include <algorithm>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "cache/policy/residency_policy.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 48;
constexpr uint32_t kExperts = 512;
constexpr uint32_t kDistinct = 40;
constexpr uint32_t kWindows = 64;  // different ones, in turn

// Skewed towards the low ids: the square of a uniform number.
std::vector<ExpertSighting> RandomLayer(Prng& prng) {
  std::vector<uint32_t> ids;
  while (ids.size() < kDistinct) {
    const double u = prng.Uniform();
    const auto id = static_cast<uint32_t>(u * u * kExperts);
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  std::ranges::sort(ids);
  std::vector<ExpertSighting> layer;
  for (const uint32_t id : ids) layer.push_back({ExpertId(id), 1});
  return layer;
}

void BM_Window(benchmark::State& state, const std::string& name) {
  PoolShape shape{.layer_count = kLayers, .expert_count = kExperts, .slot_count = 9830};
  for (uint32_t l = 0; l < kLayers; ++l) shape.layers.emplace_back(l);
  shape.layer_slots_min = 40;
  auto policy = CreatePolicy(name, shape);
  HEARTH_CHECK(policy.ok());
  Prng prng(1);
  std::vector<std::vector<ExpertSighting>> layers;
  for (uint32_t i = 0; i < kWindows * kLayers; ++i) layers.push_back(RandomLayer(prng));
  std::vector<Swap> swaps(2);
  size_t next = 0;
  uint64_t swap_count = 0;
  const auto window = [&] {
    for (uint32_t l = 0; l < kLayers; ++l) {
      (*policy)->Observe({.layer = LayerId(l), .experts = layers[next]});
      next = (next + 1) % layers.size();
      const size_t count = (*policy)->Propose(swaps);
      swap_count += count;
      for (size_t i = 0; i < count; ++i) (*policy)->Begin(swaps[i]);
      for (size_t i = 0; i < count; ++i) (*policy)->Land(swaps[i]);
    }
    (*policy)->EndWindow(4);
  };
  while ((*policy)->resident_count() < shape.slot_count) {
    const uint64_t before = swap_count;
    window();
    if (swap_count == before) break;
  }
  swap_count = 0;
  for (auto _ : state) window();
  state.counters["us_per_layer"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kLayers) * 1e-6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["swaps_per_layer"] =
      static_cast<double>(swap_count) / static_cast<double>(state.iterations() * kLayers);
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  for (const std::string& name : hearth::PolicyNames()) {
    benchmark::RegisterBenchmark(("window/" + name).c_str(), hearth::BM_Window, name);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
