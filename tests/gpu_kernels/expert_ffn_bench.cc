// Speed of experts on the GPU: 64 distinct Flash-Next experts in one call, 1 to 8 rows each, beside
// the card's measured read rate. Blobs lie in memory several times over, so that no call meets the
// bytes of the one before in a cache. Each case checks one answer against the CPU first.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/expert_ffn_case.h"

namespace hearth {
namespace {

constexpr uint32_t kItems = 64;
constexpr uint32_t kDistinctBlobs = 4;
constexpr uint32_t kCopies = 6;  // times 177 MB
constexpr uint32_t kCallsPerMeasurement = 12;

ExpertFfnCase BenchCase(uint32_t rows) {
  Prng prng(7);
  const ExpertLayout layout = {ExpertFormat::kNvfp4, 2560, 640};
  ExpertFfnCase c(layout, Quantized(RandomFloats(&prng, 8 * 2560, 1), 8, 2560));
  std::vector<ExpertBlob> blobs;
  for (uint32_t i = 0; i < kDistinctBlobs; ++i) {
    blobs.push_back(ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 2560, 640));
  }
  for (uint32_t i = 0; i < kItems; ++i) c.AddItem(&prng, blobs[i % kDistinctBlobs], rows);
  c.Finish(&prng);
  return c;
}

struct Rates {
  double call_sec = 0;
  double read_bytes_per_sec = 0;
};

absl::StatusOr<Rates> Measure(const ExpertFfnOnGpu& run, const UniqueStream& stream) {
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
  for (uint32_t i = 0; i < kCallsPerMeasurement; ++i) {
    HEARTH_RETURN_IF_ERROR(run.Launch(stream, i % kCopies));
  }
  HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
  HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
  return Rates{.call_sec = seconds / kCallsPerMeasurement};
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
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const double read_rate, MeasureDeviceReadRate(gpu));
  const ExpertFfnCase c = BenchCase(static_cast<uint32_t>(state.range(0)));
  HEARTH_ASSIGN_OR_RETURN(const ExpertFfnOnGpu run,
                          ExpertFfnOnGpu::Create(c, gpu, stream, kCopies));
  HEARTH_RETURN_IF_ERROR(CheckAnswer(c, run, stream));
  double total_sec = 0;
  for (auto _ : state) {
    HEARTH_ASSIGN_OR_RETURN(const Rates rates, Measure(run, stream));
    state.SetIterationTime(rates.call_sec);
    total_sec += rates.call_sec;
  }
  const double bytes = static_cast<double>(kItems * c.layout.blob_bytes());
  const double rate = bytes * static_cast<double>(state.iterations()) / total_sec;
  state.counters["weight_bytes/s"] = rate;
  state.counters["read_bytes/s"] = read_rate;
  state.counters["share_of_read_rate"] = rate / read_rate;
  return absl::OkStatus();
}

void ExpertsOfFlashNext(benchmark::State& state) {
  const absl::Status status = BenchExperts(state);
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}
BENCHMARK(ExpertsOfFlashNext)
    ->ArgName("rows")
    ->DenseRange(1, 8)
    ->UseManualTime()
    ->Iterations(60)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
