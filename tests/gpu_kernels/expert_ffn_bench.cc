// Speed of experts on the GPU: 10 to 64 distinct Flash-Next experts in one call, 1 to 8 rows each,
// beside the rate at which the card copies its own memory. Blobs lie in memory several times over,
// so that no call meets the bytes of the one before in a cache; calls are recorded and launched
// behind other work, so that the host is not measured. Every case checks its answer against the
// CPU first.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/expert_ffn_case.h"

namespace hearth {
namespace {

constexpr uint32_t kDistinctBlobs = 4;
constexpr uint64_t kArenaBytes = uint64_t{1} << 29;  // of blobs: ten times a second-level cache
constexpr uint32_t kCallsPerMeasurement = 96;
constexpr uint64_t kHeadStartBytes = uint64_t{4} << 30;  // filling them takes about a millisecond

ExpertFfnCase BenchCase(uint32_t rows, uint32_t items) {
  Prng prng(7);
  const ExpertLayout layout = {ExpertFormat::kNvfp4, 2560, 640};
  ExpertFfnCase c(layout, Quantized(RandomFloats(&prng, 8 * 2560, 1), 8, 2560));
  std::vector<ExpertBlob> blobs;
  for (uint32_t i = 0; i < kDistinctBlobs; ++i) {
    blobs.push_back(ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 2560, 640));
  }
  for (uint32_t i = 0; i < items; ++i) c.AddItem(&prng, blobs[i % kDistinctBlobs], rows);
  c.Finish(&prng);
  return c;
}

// The calls are the nodes of one graph, as in a window.
absl::StatusOr<UniqueGraph> RecordCalls(const ExpertFfnOnGpu& run, uint32_t copies,
                                        const UniqueStream& stream,
                                        const uint32_t* item_count = nullptr) {
  return UniqueGraph::Capture(stream.view(), [&](CudaStreamView) -> absl::Status {
    for (uint32_t i = 0; i < kCallsPerMeasurement; ++i) {
      HEARTH_RETURN_IF_ERROR(run.Launch(stream, i % copies, item_count));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<double> SecondsPerCall(const UniqueGraph& graph, const DeviceBuffer& head_start,
                                      const UniqueStream& stream) {
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_RETURN_IF_ERROR(FillBytes(head_start, std::byte{1}, stream.view()));
  HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
  HEARTH_RETURN_IF_ERROR(graph.Launch(stream.view()));
  HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
  HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
  return seconds / kCallsPerMeasurement;
}

absl::Status CheckAnswer(const ExpertFfnCase& c, const ExpertFfnOnGpu& run,
                         const UniqueStream& stream) {
  HEARTH_RETURN_IF_ERROR(run.Launch(stream));
  ExpertFfnAnswer actual(c);
  HEARTH_RETURN_IF_ERROR(run.Read(stream, &actual));
  const ExpertFfnAnswer expected = AnswerOfCpu(c, SelectCpuKernels(DetectCpuFeatures()));
  if (std::memcmp(actual.y.data(), expected.y.data(), actual.y.size() * 4) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError("the GPU's answer is not the CPU's");
}

absl::Status BenchExperts(benchmark::State& state) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto items = static_cast<uint32_t>(state.range(1));
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const double copy_rate, MeasureDeviceCopyRate(gpu));
  const ExpertFfnCase c = BenchCase(rows, items);
  const uint64_t bytes = items * c.layout.blob_bytes();
  const auto copies = static_cast<uint32_t>(kArenaBytes / bytes);
  HEARTH_ASSIGN_OR_RETURN(const ExpertFfnOnGpu run, ExpertFfnOnGpu::Create(c, gpu, stream, copies));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer head_start,
                          DeviceBuffer::Create(gpu.id, kHeadStartBytes));
  HEARTH_RETURN_IF_ERROR(CheckAnswer(c, run, stream));
  HEARTH_ASSIGN_OR_RETURN(const UniqueGraph graph, RecordCalls(run, copies, stream));
  double total_sec = 0;
  for (auto _ : state) {
    HEARTH_ASSIGN_OR_RETURN(const double sec, SecondsPerCall(graph, head_start, stream));
    state.SetIterationTime(sec);
    total_sec += sec;
  }
  const double rate = static_cast<double>(bytes * state.iterations()) / total_sec;
  state.counters["weight_bytes/s"] = rate;
  state.counters["share_of_copy_rate"] = rate / copy_rate;
  state.counters["weights/clock/SM_at_1.8GHz"] =
      rate / 0.5625 / gpu.limits.multiprocessor_count / 1.8e9;
  return absl::OkStatus();
}

void ExpertsOfFlashNext(benchmark::State& state) {
  const absl::Status status = BenchExperts(state);
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}
BENCHMARK(ExpertsOfFlashNext)
    ->ArgNames({"rows", "experts"})
    ->ArgsProduct({{1, 2, 4, 8}, {64, 40, 24, 10}})
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMicrosecond);

// A launch whose list turns out to be empty on the card.
absl::Status BenchEmptyList(benchmark::State& state) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuId gpu = list.gpus[0].id;
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertFfnOnGpu run,
      ExpertFfnOnGpu::Create(BenchCase(4, kDistinctBlobs), list.gpus[0], stream));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer head_start,
                          DeviceBuffer::Create(gpu, kHeadStartBytes));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer count,
                          DeviceCopy(std::vector<uint32_t>(1, 0), stream));
  HEARTH_ASSIGN_OR_RETURN(
      const UniqueGraph graph,
      RecordCalls(run, 1, stream, reinterpret_cast<const uint32_t*>(count.data())));
  for (auto _ : state) {
    HEARTH_ASSIGN_OR_RETURN(const double sec, SecondsPerCall(graph, head_start, stream));
    state.SetIterationTime(sec);
  }
  return absl::OkStatus();
}

void EmptyList(benchmark::State& state) {
  const absl::Status status = BenchEmptyList(state);
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}
BENCHMARK(EmptyList)->UseManualTime()->Iterations(10)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
