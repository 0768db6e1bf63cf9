// Tokens per second of decoding and of prompt reading on the shipped model, beside the floor: bytes
// of weights over the read rate measured in the same run.
//   build/release/tests/runtime/engine/generation_bench --benchmark_repetitions=10
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/cpus.h"
#include "runtime/engine/generation.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

constexpr uint32_t kOutputTokens = 400;

struct Bench {
  explicit Bench(uint32_t threads)
      : pack(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8),
        runner(pack.dir(), {.worker_count = threads}),
        tokenizer(*Tokenizer::FromJson(
            ReadFixtureFile(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json"), "tokenizer")) {
    const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
    const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
    prompt.assign(ids.begin(), ids.end());
  }
  TemporaryPack pack;
  LoadedRunner runner;
  Tokenizer tokenizer;
  SteadyClock clock;
  std::vector<TokenId> prompt;  // 700 tokens of source code
};

uint32_t ThreadsOf(const benchmark::State& state) {
  return state.range(0) == 0 ? AllowedCpuCount() : static_cast<uint32_t>(state.range(0));
}

// Arguments: threads (0: all), drafts per window.
void Decode(benchmark::State& state) {
  Bench bench(ThreadsOf(state));
  GenerationRequest request{.prompt = {bench.prompt.begin(), bench.prompt.begin() + 64},
                            .max_tokens = kOutputTokens + 1,
                            .drafts_max = static_cast<uint32_t>(state.range(1)),
                            .ignore_stop_tokens = true};
  uint64_t tokens = 0, bytes = 0;
  for (auto _ : state) {
    auto generation = Generation::Create(*bench.runner, bench.tokenizer, bench.clock, request);
    if (!generation.ok() || !(*generation)->ReadPrompt(nullptr).ok()) {
      state.SkipWithError("cannot start");
      return;
    }
    while (!(*generation)->finished()) {
      if (!(*generation)->Step().ok()) state.SkipWithError("cannot go on");
    }
    const GenerationStats stats = (*generation)->stats();
    state.SetIterationTime(static_cast<double>(stats.decode_ns) * 1e-9);
    tokens += kOutputTokens;
    bytes += stats.decode_bytes;
  }
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["weight_bytes/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsRate);
  state.counters["bytes/token"] = static_cast<double>(bytes) / static_cast<double>(tokens);
}
BENCHMARK(Decode)
    ->ArgsProduct({{1, 0}, {0, 3}})
    ->ArgNames({"threads", "drafts"})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Argument: threads (0: all).
void Prompt(benchmark::State& state) {
  Bench bench(ThreadsOf(state));
  uint64_t tokens = 0;
  for (auto _ : state) {
    auto generation = Generation::Create(*bench.runner, bench.tokenizer, bench.clock,
                                         {.prompt = bench.prompt, .max_tokens = 1});
    if (!generation.ok() || !(*generation)->ReadPrompt(nullptr).ok()) {
      state.SkipWithError("cannot read the prompt");
      return;
    }
    state.SetIterationTime(static_cast<double>((*generation)->stats().prompt_ns) * 1e-9);
    tokens += bench.prompt.size();
  }
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(Prompt)->Arg(1)->Arg(0)->ArgName("threads")->UseManualTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
