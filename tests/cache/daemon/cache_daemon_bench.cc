// What a daemon costs an engine: a lease by shared memory, a round trip, and coming back to a
// daemon that is warm.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "cache/daemon/daemon.h"
#include "cache/store/remote_store.h"
#include "tests/cache/daemon/daemon_fixture.h"

namespace hearth {
namespace {

struct Bench {
  StoreFixture store{
      StoreShape{.trunk_layers = 8, .expert_count = 512, .hidden = 128, .width = 16}};
  FixtureDir dir;
  std::string socket = dir.File("hearthd");
  SteadyClock clock;
  std::unique_ptr<DaemonThread> daemon =
      std::make_unique<DaemonThread>(store, socket, DaemonSetup{.share = 1.0, .fill = true});
  std::unique_ptr<RemoteStore> remote = *ConnectTo(socket, store, clock);
  Bench() {
    Eventually([&] { return remote->TryAcquire(Key(8, 511)).has_value(); });
  }
};

void LeaseByHazardWord(benchmark::State& state) {
  Bench bench;
  uint32_t e = 0;
  for (auto _ : state) {
    const std::optional<ExpertLease> lease = bench.remote->TryAcquire(Key(1, e++ % 512));
    benchmark::DoNotOptimize(lease->bytes().data());
  }
}
BENCHMARK(LeaseByHazardWord);

void RoundTripForHeatOfALayer(benchmark::State& state) {
  Bench bench;
  std::vector<float> heat(512);
  for (auto _ : state) benchmark::DoNotOptimize(bench.remote->Heat(LayerId(1), heat).ok());
}
BENCHMARK(RoundTripForHeatOfALayer);

void ConnectToAWarmDaemon(benchmark::State& state) {
  Bench bench;
  for (auto _ : state) {
    const auto remote = ConnectTo(bench.socket, bench.store, bench.clock);
    benchmark::DoNotOptimize((*remote)->TryAcquire(Key(3, 3)).has_value());
  }
}
BENCHMARK(ConnectToAWarmDaemon)->Iterations(30);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
