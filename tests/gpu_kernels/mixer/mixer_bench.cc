// Time of the mixer's operations at Flash-Next's shapes, as launches of a graph, beside the bytes
// that each must move and the card's measured copy rate. 36 sets of delta-rule states take turns,
// as the layers of a model do, so that no state is found in a cache.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/ngram.h"
#include "gpu_kernels/ops/mixer/rotary.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/base/units.h"
#include "tests/gpu_kernels/mixer/gdn_case.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 36;
constexpr uint32_t kHidden = 2560;
constexpr uint32_t kStreams = 4;
constexpr uint32_t kWidth = kStreams * kHidden;
constexpr uint32_t kRanks = 10;
constexpr uint32_t kReplays = 15;
constexpr GpuGdnShape kShape = {16, 48, 128, 128, 4};

absl::StatusOr<UniqueStream> OpenStream() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  return UniqueStream::Create(list.gpus[0].id);
}

// Bytes per second, read and written both counted.
absl::StatusOr<double> CopyRate(const UniqueStream& stream) {
  constexpr uint64_t kBytes = 1_GiB;
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer from,
                          DeviceBuffer::Create(stream.view().gpu(), kBytes));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Create(stream.view().gpu(), kBytes));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_RETURN_IF_ERROR(FillBytes(from, std::byte{0x5A}, stream.view()));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice,
                                   stream.view().get()),
                   "copy"));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double sec, UniqueEvent::SecondsBetween(start, stop));
    best = std::max(best, 2.0 * kBytes / sec);
  }
  return best;
}

// The median time of one of `launches` launches in a graph.
absl::Status Report(benchmark::State& state, const UniqueStream& stream, uint32_t launches,
                    double bytes,
                    absl::FunctionRef<absl::Status(uint32_t, CudaStreamView)> launch) {
  HEARTH_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(stream));
  HEARTH_ASSIGN_OR_RETURN(const UniqueGraph graph,
                          UniqueGraph::Capture(stream.view(), [&](CudaStreamView view) {
                            for (uint32_t i = 0; i < launches; ++i)
                              HEARTH_RETURN_IF_ERROR(launch(i, view));
                            return absl::OkStatus();
                          }));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  std::vector<double> sec;
  for (uint32_t i = 0; i < kReplays + 3; ++i) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(graph.Launch(stream.view()));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double s, UniqueEvent::SecondsBetween(start, stop));
    if (i >= 3) sec.push_back(s / launches);
  }
  std::sort(sec.begin(), sec.end());
  const double median = sec[sec.size() / 2];
  for (auto _ : state) state.SetIterationTime(median);
  state.counters["MB"] = bytes / 1e6;
  state.counters["GB/s"] = bytes / median / 1e9;
  state.counters["of_copy"] = bytes / median / copy_rate;
  return absl::OkStatus();
}

std::vector<float> Values(size_t count, float magnitude) {
  Prng prng(count);
  return RandomFloats(&prng, count, magnitude);
}

absl::Status BenchStep(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto write = static_cast<StreamWrite>(state.range(1));
  // Of a row's ten outputs, those that the host has computed; negative: there is no host.
  const auto host_ranks = static_cast<int32_t>(state.range(2));
  HEARTH_ASSIGN_OR_RETURN(
      const PinnedBuffer host_y,
      PinnedBuffer::Create(stream.view().gpu(), uint64_t{rows} * kRanks * kHidden * 4));
  std::vector<uint8_t> is_on_card(size_t{rows} * kRanks);
  for (size_t i = 0; i < is_on_card.size(); ++i) {
    is_on_card[i] = static_cast<int32_t>(i % kRanks) >= host_ranks ? 1 : 0;
  }
  const DeviceArray<uint8_t> on_card(stream, is_on_card);
  const DeviceArray<float> h(stream, Values(size_t{rows} * kWidth, 1));
  const DeviceArray<float> y(stream, Values(size_t{rows} * kRanks * kHidden, 1));
  const DeviceArray<float> weight(stream, Values(size_t{rows} * kRanks, 1));
  const DeviceArray<float> inject(stream, Values(size_t{rows} * kStreams, 1e-3f));
  const DeviceArray<float> norm(stream, Values(kWidth, 1));
  const DeviceArray<float> hn(stream, size_t{rows} * kWidth);
  const DeviceQuantized quantized(stream, rows, kWidth);
  const GpuStreamStepArgs args = {
      .write = write,
      .h = h.data(),
      .y = y.data(),
      .combine = {.device_y = y.data(),
                  .host_y = host_ranks < 0 ? nullptr
                                           : reinterpret_cast<const float*>(host_y.device_data()),
                  .on_card = host_ranks < 0 ? nullptr : on_card.data(),
                  .y_stride = kHidden,
                  .weight = weight.data(),
                  .shared = y.data(),
                  .shared_gate = weight.data(),
                  .ranks = kRanks},
      .inject = inject.data(),
      .norm = norm.data(),
      .epsilon = 1e-6f,
      .hn = hn.data(),
      .hn_quantized = quantized.out(),
      .rows = rows,
      .streams = kStreams,
      .hidden = kHidden};
  const double row_bytes = kWidth * (write == StreamWrite::kNone ? 9.3 : 13.3) +
                           (write == StreamWrite::kCombine ? kRanks + 1 : 1) * kHidden * 4.0;
  return Report(state, stream, 50, rows * row_bytes + kWidth * 4.0,
                [&](uint32_t, CudaStreamView view) { return LaunchStreamStep(args, view); });
}

absl::Status BenchMix(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const DeviceArray<float> gate(stream, Values(size_t{rows} * kWidth, 1));
  const DeviceArray<float> hn(stream, Values(size_t{rows} * kWidth, 1));
  const DeviceArray<float> u(stream, size_t{rows} * kHidden);
  const DeviceQuantized quantized(stream, rows, kHidden);
  const GpuStreamMixArgs args = {.gate = gate.data(),
                                 .hn = hn.data(),
                                 .u = u.data(),
                                 .u_quantized = quantized.out(),
                                 .rows = rows,
                                 .streams = kStreams,
                                 .hidden = kHidden};
  return Report(state, stream, 50, rows * (kWidth * 8.0 + kHidden * 5.3),
                [&](uint32_t, CudaStreamView view) { return LaunchStreamMix(args, view); });
}

absl::Status BenchSwiglu(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  constexpr uint32_t kCols = 640;
  const DeviceArray<float> x(stream, Values(size_t{rows} * kCols, 1));
  const DeviceQuantized quantized(stream, rows, kCols);
  const GpuActivateQuantizeArgs args = {.function = RowFunction::kSwiglu,
                                        .x = x.data(),
                                        .up = x.data(),
                                        .x_stride = kCols,
                                        .quantized = quantized.out(),
                                        .rows = rows,
                                        .cols = kCols};
  return Report(state, stream, 50, rows * kCols * 9.3,
                [&](uint32_t, CudaStreamView view) { return LaunchActivateQuantize(args, view); });
}

absl::Status BenchRouter(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const DeviceArray<float> logits(stream, Values(size_t{rows} * 512, 5));
  const DeviceArray<uint32_t> expert(stream, size_t{rows} * kRanks);
  const DeviceArray<float> weight(stream, size_t{rows} * kRanks);
  const DeviceArray<uint32_t> flag(stream, std::vector<uint32_t>{0});
  const GpuRouterArgs args = {.logits = logits.data(),
                              .expert = expert.data(),
                              .weight = weight.data(),
                              .nan_flag = flag.data(),
                              .rows = rows,
                              .expert_count = 512,
                              .ranks = kRanks};
  return Report(state, stream, 50, rows * 512 * 4.0,
                [&](uint32_t, CudaStreamView view) { return LaunchRouter(args, view); });
}

absl::Status BenchRotary(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const DevicePass pass(stream, {{.rows = rows, .base = 5000}}, kCaseWindowRows, kCaseRingRows);
  const DeviceArray<float> tables(stream, size_t{4} * rows * 32);
  const GpuRotaryTableArgs args = {.pass = pass.table(),
                                   .cos = tables.data(),
                                   .sin = tables.data() + rows * 32,
                                   .block_cos = tables.data() + rows * 64,
                                   .block_sin = tables.data() + rows * 96,
                                   .theta = 1e7,
                                   .rotary_dim = 64,
                                   .block_tokens = 4};
  return Report(state, stream, 50, rows * 512.0,
                [&](uint32_t, CudaStreamView view) { return LaunchRotaryTable(args, view); });
}

absl::Status BenchNgram(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const bool window = rows <= kCaseWindowRows;
  const DeviceArray<float> ring(stream, std::vector<float>(size_t{kCaseRingRows} * kWidth));
  const DevicePass pass(stream, {{.ngram_ring = ring.data(), .rows = rows, .base = 50}},
                        kCaseWindowRows, kCaseRingRows);
  const DeviceArray<float> key(stream, Values(size_t{rows} * kWidth, 1));
  const DeviceArray<float> h(stream, Values(size_t{rows} * kWidth, 1));
  const DeviceArray<float> scratch(stream, size_t{2} * rows * kWidth);
  const DeviceArray<float> weights(stream, Values(size_t{4} * kWidth, 0.1f));
  const GpuNgramArgs args = {.pass = pass.table(),
                             .key = key.data(),
                             .value = key.data(),
                             .norm_key = weights.data(),
                             .norm_query = weights.data(),
                             .norm_conv = weights.data(),
                             .conv = weights.data(),
                             .h = h.data(),
                             .gated = scratch.data(),
                             .conv_in = scratch.data() + size_t{rows} * kWidth,
                             .epsilon = 1e-6f,
                             .streams = kStreams,
                             .hidden = kHidden,
                             .taps = 4,
                             .dilation = 3,
                             .window = window};
  return Report(state, stream, 20, rows * kWidth * 4.0 * 12 + kWidth * 4.0 * 7,
                [&](uint32_t, CudaStreamView view) { return LaunchNgram(args, view); });
}

enum class GdnPart { kConvolve, kRule };

// One window or prompt on each of the layers' states; range(1) rows are pending.
absl::Status BenchGdn(benchmark::State& state, GdnPart part) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, OpenStream());
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto pending = static_cast<uint32_t>(state.range(1));
  const bool window = rows <= kCaseWindowRows;
  const uint32_t layers = window ? kLayers : 2;
  const GdnCase c(kShape, OutputGate::kSigmoid, 3);
  Prng prng(9);
  const GdnRows inputs = GdnRows::Random(kShape, rows, &prng);
  std::deque<GpuGdnSequence> sequences;
  std::deque<GpuGdnPass> passes;
  for (uint32_t i = 0; i < layers; ++i) {
    GpuGdnSequence& s = sequences.emplace_back(stream, kShape);
    s.base = 100;
    passes.emplace_back(stream, c, std::vector<GpuSegment>{s.Segment(window ? rows : 1)},
                        window ? inputs : inputs.Slice(kShape, 0, 1));
    if (pending > 0) HEARTH_RETURN_IF_ERROR(passes.back().Launch(true, stream.view()));
    s.pending_rows = std::min(pending, rows);
    s.parity = 1;
    passes.pop_back();
    passes.emplace_back(stream, c, std::vector<GpuSegment>{s.Segment(rows)}, inputs);
    if (!window)
      HEARTH_RETURN_IF_ERROR(LaunchGdnConvolve(passes.back().ConvolveArgs(), stream.view()));
  }
  constexpr double kState = 48.0 * 128 * 128 * 4;
  const double row_bytes = part == GdnPart::kConvolve ? kShape.channels() * 4.0 * 3
                                                      : (kShape.channels() + 6144) * 4.0 + 6144;
  const double fixed =
      part == GdnPart::kConvolve ? kShape.channels() * 16.0 : kState * (pending > 0 ? 2 : 1);
  return Report(state, stream, layers, fixed + row_bytes * rows,
                [&](uint32_t i, CudaStreamView view) {
                  const GpuGdnPass& pass = passes[i];
                  if (part == GdnPart::kConvolve) {
                    return LaunchGdnConvolve(pass.ConvolveArgs(), view);
                  }
                  return window ? LaunchGdnWindow(pass.WindowArgs(), view)
                                : LaunchGdnPrompt(pass.PromptArgs(), view);
                });
}

void Run(benchmark::State& state, absl::FunctionRef<absl::Status(benchmark::State&)> body) {
  const absl::Status status = body(state);
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}

void StreamStep(benchmark::State& state) { Run(state, BenchStep); }
void StreamMix(benchmark::State& state) { Run(state, BenchMix); }
void SharedSwiglu(benchmark::State& state) { Run(state, BenchSwiglu); }
void Router(benchmark::State& state) { Run(state, BenchRouter); }
void RotaryTables(benchmark::State& state) { Run(state, BenchRotary); }
void NgramConsumer(benchmark::State& state) { Run(state, BenchNgram); }
void GdnConvolve(benchmark::State& state) {
  Run(state, [](benchmark::State& s) { return BenchGdn(s, GdnPart::kConvolve); });
}
void GdnRule(benchmark::State& state) {
  Run(state, [](benchmark::State& s) { return BenchGdn(s, GdnPart::kRule); });
}

constexpr auto kMicrosecond = benchmark::kMicrosecond;
BENCHMARK(StreamStep)  // write: 0 none, 2 add, 3 combine
    ->ArgNames({"rows", "write", "of_host"})
    ->ArgsProduct({{1, 4, 9, 2048}, {0, 2, 3}, {-1}})
    ->ArgsProduct({{1, 4, 9}, {3}, {0, 1, 3}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(kMicrosecond);
BENCHMARK(StreamMix)->Arg(1)->Arg(4)->Arg(9)->Arg(2048)->UseManualTime()->Iterations(1)->Unit(
    kMicrosecond);
BENCHMARK(SharedSwiglu)->Arg(1)->Arg(9)->UseManualTime()->Iterations(1)->Unit(kMicrosecond);
BENCHMARK(Router)->Arg(1)->Arg(4)->Arg(9)->Arg(2048)->UseManualTime()->Iterations(1)->Unit(
    kMicrosecond);
BENCHMARK(RotaryTables)->Arg(1)->Arg(9)->UseManualTime()->Iterations(1)->Unit(kMicrosecond);
BENCHMARK(NgramConsumer)
    ->Arg(1)
    ->Arg(4)
    ->Arg(9)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(kMicrosecond);
BENCHMARK(GdnConvolve)
    ->ArgNames({"rows", "pending"})
    ->ArgsProduct({{512, 2048}, {0}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(kMicrosecond);
BENCHMARK(GdnRule)
    ->ArgNames({"rows", "pending"})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Args({4, 0})
    ->Args({4, 3})
    ->Args({9, 0})
    ->Args({9, 9})
    ->Args({512, 0})
    ->Args({2048, 0})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
