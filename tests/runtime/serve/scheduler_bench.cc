// What a scheduler costs beside the model's own work, and what sharing windows brings, on the
// shipped model: tokens per second of all clients together, by how many there are, and the time
// that the engine's thread spends outside passes and choices in each round with a window.
//   build/release/tests/runtime/serve/scheduler_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/cpus.h"
#include "runtime/serve/scheduler.h"
#include "tests/support/flashlet_fixture.h"

namespace hearth {
namespace {

constexpr uint32_t kOutputTokens = 64;

class Counter final : public CompletionSink {
 public:
  explicit Counter(std::atomic<uint32_t>& left) : left_(left) {}
  void OnDelta(CompletionDelta delta) override { bytes_ += delta.text.size(); }
  void OnEnd(const CompletionEnd&) override { End(); }
  void OnError(const absl::Status&) override { End(); }

 private:
  void End() {
    left_.fetch_sub(1);
    left_.notify_all();
  }
  std::atomic<uint32_t>& left_;
  size_t bytes_ = 0;
};

// Arguments: clients, sequences at work, drafts.
void Serve(benchmark::State& state) {
  const Flashlet model(HEARTH_SOURCE_DIR);
  LoadedRunner runner(model.pack_dir(), {.worker_count = AllowedCpuCount()});
  SteadyClock clock;
  auto made = Scheduler::Create({.runner = *runner, .tokenizer = model.tokenizer(), .clock = clock},
                                {.sequences_max = static_cast<uint32_t>(state.range(1)),
                                 .drafts_max = static_cast<uint32_t>(state.range(2))});
  if (!made.ok()) {
    state.SkipWithError("cannot start");
    return;
  }
  Scheduler& scheduler = **made;
  std::thread engine([&] { scheduler.Serve(); });
  const auto clients = static_cast<uint32_t>(state.range(0));
  uint64_t tokens = 0;
  for (auto _ : state) {
    std::atomic<uint32_t> left{clients};
    for (uint32_t i = 0; i < clients; ++i) {
      const CompletionRequest request{.prompt = model.Golden(i % 2 == 0 ? "code" : "prose", 32 + i),
                                      .max_tokens = kOutputTokens,
                                      .ignore_stop_tokens = true};
      if (!scheduler.Submit(request, std::make_shared<Counter>(left)).ok()) left.fetch_sub(1);
    }
    for (uint32_t n = left; n != 0; n = left) left.wait(n);
    tokens += uint64_t{clients} * kOutputTokens;
  }
  scheduler.Drain();
  engine.join();
  const ServeCounters counters = scheduler.counters();
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["overhead_p50_us"] = counters.overhead.Quantile(0.5).value_or(0) * 1e6;
  state.counters["overhead_p99_us"] = counters.overhead.Quantile(0.99).value_or(0) * 1e6;
  state.counters["first_token_p50_ms"] = counters.first_token.Quantile(0.5).value_or(0) * 1e3;
}
BENCHMARK(Serve)
    ->Args({1, 1, 0})
    ->Args({1, 1, 3})
    ->Args({4, 4, 0})
    ->Args({8, 8, 0})
    ->Args({8, 8, 3})
    ->Args({64, 8, 3})
    ->Args({64, 16, 3})
    ->ArgNames({"clients", "sequences", "drafts"})
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
