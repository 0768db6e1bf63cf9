// What a prefix that is found saves, on the shipped model: time to restore n tokens against the
// time to read them, and what keeping them costs.
//   build/release/tests/runtime/engine/prefix_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/base/cpus.h"
#include "runtime/base/units.h"
#include "runtime/engine/prefix_cache.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

// Reads the prompt up to its cuts but the last; the MTP layer, too.
absl::Status ReadCuts(ModelRunner& runner, const PrefixQuery& query, Sequence& sequence) {
  for (const uint32_t cut : query.cuts.first(query.cuts.size() - 1)) {
    const uint32_t begin = sequence.token_count();
    const Segment segment{.sequence = &sequence,
                          .tokens = query.tokens.subspan(begin, cut - begin)};
    absl::Status status = runner.RunTrunk({&segment, 1}, Phase::kPrompt);
    if (status.ok()) status = runner.Commit(sequence, cut - begin);
    const uint32_t first = sequence.draft_count();
    if (status.ok()) {
      status = runner.RunDraft(sequence, query.tokens.subspan(first + 1, cut - 1 - first),
                               Backend::DraftSource::kTrunk);
    }
    if (status.ok()) status = runner.CommitDraft(sequence);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Argument: tokens.
void RestorePrefix(benchmark::State& state) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const TemporaryPack pack(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8);
  LoadedRunner runner(pack.dir(), {.worker_count = AllowedCpuCount()});
  const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
  const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
  std::vector<TokenId> prompt(tokens + 1);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = ids[i % ids.size()];
  std::vector<uint32_t> cuts;
  for (uint32_t at = 256; at < tokens; at += 256) cuts.push_back(at);
  cuts.push_back(tokens);
  cuts.push_back(tokens + 1);
  const PrefixQuery query{.tokens = prompt, .cuts = cuts, .drafts = true};
  SteadyClock clock;
  int64_t read_ns = INT64_MAX, keep_ns = INT64_MAX, restore_ns = INT64_MAX;  // the best of all
  for (auto _ : state) {
    PrefixCache cache(runner->imager(), {.ram_budget_bytes = 1_GiB});
    const auto read = *runner->CreateSequence(tokens + 64);
    const auto restored = *runner->CreateSequence(tokens + 64);
    const int64_t begin_ns = clock.NowNs();
    if (!ReadCuts(*runner, query, *read).ok()) state.SkipWithError("cannot read");
    const int64_t keep_begin_ns = clock.NowNs();
    if (!cache.Keep(query, *read).ok()) state.SkipWithError("cannot keep");
    const int64_t find_begin_ns = clock.NowNs();
    const auto found = cache.Find(query);
    if (!found || !cache.Restore(*found, *restored).ok()) state.SkipWithError("cannot restore");
    const int64_t end_ns = clock.NowNs();
    read_ns = std::min(read_ns, keep_begin_ns - begin_ns);
    keep_ns = std::min(keep_ns, find_begin_ns - keep_begin_ns);
    restore_ns = std::min(restore_ns, end_ns - find_begin_ns);
    state.SetIterationTime(static_cast<double>(end_ns - find_begin_ns) * 1e-9);
    state.counters["image_bytes"] = static_cast<double>(cache.stats().bytes);
  }
  state.counters["read_ms"] = static_cast<double>(read_ns) * 1e-6;
  state.counters["keep_ms"] = static_cast<double>(keep_ns) * 1e-6;
  state.counters["restore_ms"] = static_cast<double>(restore_ns) * 1e-6;
  state.counters["read/restore"] = static_cast<double>(read_ns) / static_cast<double>(restore_ns);
}
BENCHMARK(RestorePrefix)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->ArgName("tokens")
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
