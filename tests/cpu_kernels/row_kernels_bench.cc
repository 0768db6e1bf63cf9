// Rates of the row kernels at the model's shapes, for every row of the kernel table that this
// machine runs.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

std::vector<float> Values(size_t count, uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(prng.Uniform() * 2 - 1) * 0.1f;
  return values;
}

void SetBytes(benchmark::State& state, uint64_t bytes_per_run) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes_per_run * state.iterations()));
}

void SetFlops(benchmark::State& state, double flops_per_run) {
  state.counters["flops"] =
      benchmark::Counter(flops_per_run, benchmark::Counter::kIsIterationInvariantRate);
}

// Eight heads, so that the states (512 KiB) do not sit in the first-level cache. Bytes: a read and
// a write.
void GdnRecurrentHead(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kHeads = 8, kDim = 128;
  const auto qkv = Values(3 * kDim, 1);
  std::vector<float> states = Values(size_t{kHeads} * kDim * kDim, 2);
  const float decay = 0.9f, beta = 0.5f;
  std::vector<float> out(kDim);
  for (auto _ : state) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      float* s = states.data() + size_t{head} * kDim * kDim;
      row.gdn_recurrent.fn({.q = qkv.data(),
                            .k = qkv.data() + kDim,
                            .v = qkv.data() + 2 * kDim,
                            .qkv_stride = 3 * kDim,
                            .decay = &decay,
                            .beta = &beta,
                            .gate_stride = 1,
                            .state_in = s,
                            .state_out = s,
                            .out = out.data(),
                            .out_stride = kDim,
                            .rows = 1,
                            .key_dim = kDim,
                            .value_dim = kDim});
    }
  }
  SetBytes(state, states.size() * sizeof(float) * 2);
  SetFlops(state, 7.0 * kHeads * kDim * kDim);
}

// One head, one chunk of 64 rows; the flops of the dense products, triangles counted as half.
void GdnChunkedHead(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kRows = 64, kDim = 128;
  const auto qkv = Values(size_t{kRows} * 3 * kDim, 1);
  const std::vector<float> log_decay(kRows, -0.05f), beta(kRows, 0.5f);
  std::vector<float> s = Values(size_t{kDim} * kDim, 2), out(size_t{kRows} * kDim);
  std::vector<float> scratch(GdnChunkedScratchFloats(kRows, kDim, kDim));
  for (auto _ : state) {
    row.gdn_chunked.fn({.q = qkv.data(),
                        .k = qkv.data() + kDim,
                        .v = qkv.data() + 2 * kDim,
                        .qkv_stride = 3 * kDim,
                        .log_decay = log_decay.data(),
                        .beta = beta.data(),
                        .gate_stride = 1,
                        .state = s.data(),
                        .out = out.data(),
                        .out_stride = kDim,
                        .rows = kRows,
                        .key_dim = kDim,
                        .value_dim = kDim,
                        .chunk_rows = kRows,
                        .scratch = scratch.data()});
  }
  // Half of q k', k k', the solve and P D; all of k S, q S and k' D.
  SetFlops(state, 2.0 * (4 * 0.5 * kRows * kRows * kDim + 3.0 * kRows * kDim * kDim));
}

void AttendHead(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kCount = 2051, kDim = 256;
  const auto k = Values(size_t{kCount} * kDim, 1), v = Values(size_t{kCount} * kDim, 2);
  const auto q = Values(kDim, 3);
  std::vector<uint32_t> positions(kCount);
  for (uint32_t i = 0; i < kCount; ++i) positions[i] = i;
  std::vector<float> scores(kCount), out(kDim);
  for (auto _ : state) {
    row.attend.fn({.q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .kv_stride = kDim,
                   .positions = positions.data(),
                   .count = kCount,
                   .dim = kDim,
                   .scale = 0.0625f,
                   .scores = scores.data(),
                   .out = out.data()});
  }
  SetBytes(state, (k.size() + v.size()) * sizeof(float));
  SetFlops(state, 4.0 * kCount * kDim);
}

void BlockScoreRow(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kHeads = 4, kDim = 128, kBlocks = 4096;
  const auto q = Values(kHeads * kDim, 1), keys = Values(size_t{kBlocks} * kDim, 2);
  std::vector<float> score(kBlocks);
  for (auto _ : state) {
    row.block_score.fn({.q = q.data(),
                        .keys = keys.data(),
                        .score = score.data(),
                        .heads = kHeads,
                        .dim = kDim,
                        .block_count = kBlocks,
                        .scale = 0.0884f});
  }
  SetBytes(state, keys.size() * sizeof(float));
  SetFlops(state, 2.0 * kHeads * kDim * kBlocks);
}

void StreamMixRow(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kStreams = 4, kHidden = 2560;
  const auto gate = Values(kStreams * kHidden, 1), hn = Values(kStreams * kHidden, 2);
  std::vector<float> u(kHidden);
  for (auto _ : state) {
    row.stream_mix.fn({.gate = gate.data(),
                       .hn = hn.data(),
                       .u = u.data(),
                       .rows = 1,
                       .streams = kStreams,
                       .hidden = kHidden});
  }
  SetBytes(state, (gate.size() + hn.size() + u.size()) * sizeof(float));
}

void RmsNormRow(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kStreams = 4, kHidden = 2560;
  const auto x = Values(kStreams * kHidden, 1), w = Values(kStreams * kHidden, 2);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    row.rms_norm.fn({.x = x.data(),
                     .x_stride = kStreams * kHidden,
                     .y = y.data(),
                     .y_stride = kStreams * kHidden,
                     .w = w.data(),
                     .w_count = kStreams * kHidden,
                     .rows = 1,
                     .cols = kStreams * kHidden,
                     .group = kHidden,
                     .epsilon = 1e-6f});
  }
  SetBytes(state, (x.size() + w.size() + y.size()) * sizeof(float));
}

// The convolution and the gate of a GDN layer, 16 rows.
void ConvRows(benchmark::State& state, const CpuKernels& row) {
  constexpr uint32_t kRows = 16, kChannels = 10240, kTaps = 4;
  const auto x = Values(size_t{kRows + kTaps - 1} * kChannels, 1), w = Values(kTaps * kChannels, 2);
  std::vector<float> out(size_t{kRows} * kChannels);
  for (auto _ : state) {
    row.conv.fn({.x = x.data(),
                 .x_stride = kChannels,
                 .w = w.data(),
                 .w_stride = kChannels,
                 .out = out.data(),
                 .out_stride = kChannels,
                 .rows = kRows,
                 .channel_begin = 0,
                 .channel_end = kChannels,
                 .taps = kTaps});
  }
  SetBytes(state, (x.size() + out.size()) * sizeof(float));
  SetFlops(state, 2.0 * kTaps * kRows * kChannels);
}

void TopKRow(benchmark::State& state, uint32_t count, uint32_t k) {
  const auto values = Values(count, 1);
  std::vector<uint32_t> index(k);
  std::vector<uint64_t> scratch(count);
  for (auto _ : state) {
    benchmark::DoNotOptimize(FindCpuKernels("scalar")->top_k.fn({.values = values.data(),
                                                                 .count = count,
                                                                 .k = k,
                                                                 .index = index.data(),
                                                                 .scratch = scratch.data()}));
  }
}

void RegisterAll() {
  using Body = void (*)(benchmark::State&, const CpuKernels&);
  const std::pair<const char*, Body> bodies[] = {{"GdnRecurrent/8x128x128", GdnRecurrentHead},
                                                 {"GdnChunked/64x128x128", GdnChunkedHead},
                                                 {"Attend/2051x256", AttendHead},
                                                 {"BlockScore/4096x4x128", BlockScoreRow},
                                                 {"StreamMix/4x2560", StreamMixRow},
                                                 {"RmsNorm/4x2560", RmsNormRow},
                                                 {"Conv/16x10240x4", ConvRows}};
  for (const auto& [name, body] : bodies) {
    for (const CpuKernels& row : AllCpuKernels()) {
      if (!Supports(DetectCpuFeatures(), row.isa)) continue;
      const std::string full_name = std::string(name) + "/" + std::string(IsaName(row.isa));
      benchmark::RegisterBenchmark(full_name.c_str(), body, std::cref(row));
    }
  }
  benchmark::RegisterBenchmark("TopK/10of512", TopKRow, 512u, 10u);
  benchmark::RegisterBenchmark("TopK/512of65536", TopKRow, 65536u, 512u);
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  hearth::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
