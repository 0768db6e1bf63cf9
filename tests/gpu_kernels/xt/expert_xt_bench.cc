// Speed of XT experts on the GPU: distinct Flash-Next experts in one call, 1 to 8 rows each, as
// weights per second, as the integer operations that the card could have done for each weight, and
// beside its read rate. Blobs lie in
// memory several times over, so that no call meets the bytes of the one before in a cache. Each
// case checks one answer against the CPU first.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/xt/expert_xt_case.h"

namespace hearth {
namespace {

constexpr uint32_t kDistinctBlobs = 2;
constexpr uint32_t kCallsPerMeasurement = 12;
// Integer operations that a multiprocessor of sm_80 to sm_120 does in a cycle, and an H200's clock
// under load; what a weight needs of them: gpu_kernels/ops/xt/BENCHMARKS.md.
constexpr double kIntegerLanes = 64;
constexpr double kClockHz = 1.98e9;
constexpr uint64_t kBlobBytesWanted = 600'000'000;  // several times the second cache

ExpertXtCase BenchCase(XtBits bits, uint32_t items, uint32_t rows) {
  Prng prng(7);
  const ExpertLayout layout = {ExpertFormat::kXt, 2560, 640, bits};
  const CpuKernels& kernels = SelectCpuKernels(DetectCpuFeatures());
  ExpertXtCase c(layout, XtRowsBuffer::Of(kernels, RandomFloats(&prng, 8 * 2560, 1), 8, 2560));
  std::vector<XtBlob> blobs;
  for (uint32_t i = 0; i < kDistinctBlobs; ++i) {
    blobs.push_back(XtBlob::Random(&prng, 2560, 640, bits));
  }
  for (uint32_t i = 0; i < items; ++i) c.AddItem(&prng, blobs[i % kDistinctBlobs], rows);
  c.Finish(&prng);
  return c;
}

absl::StatusOr<double> SecondsPerCall(const ExpertXtOnGpu& run, const UniqueStream& stream,
                                      uint32_t copies) {
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
  for (uint32_t i = 0; i < kCallsPerMeasurement; ++i) {
    HEARTH_RETURN_IF_ERROR(run.Launch(stream, i % copies));
  }
  HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
  HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
  return seconds / kCallsPerMeasurement;
}

absl::Status CheckAnswer(const ExpertXtCase& c, const ExpertXtOnGpu& run,
                         const UniqueStream& stream) {
  HEARTH_RETURN_IF_ERROR(run.Launch(stream));
  ExpertXtAnswer actual(c);
  HEARTH_RETURN_IF_ERROR(run.Read(stream, &actual));
  const ExpertXtAnswer expected =
      AnswerOfCpu(c, SelectCpuKernels(DetectCpuFeatures()), c.item_count());
  if (std::memcmp(actual.y.data(), expected.y.data(), actual.y.size() * 4) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError("the GPU's answer is not the CPU's");
}

absl::Status BenchExperts(benchmark::State& state, XtBits bits) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const double read_rate, MeasureDeviceReadRate(gpu));
  const auto items = static_cast<uint32_t>(state.range(0));
  const ExpertXtCase c = BenchCase(bits, items, static_cast<uint32_t>(state.range(1)));
  const auto copies =
      static_cast<uint32_t>(kBlobBytesWanted / (items * c.layout.stride_bytes()) + 1);
  HEARTH_ASSIGN_OR_RETURN(ExpertXtPlan plan, PlanExpertXt(c.Desc(), gpu.limits));
  plan.kind = static_cast<XtDecodeKind>(state.range(2));
  plan.shared_bytes = XtSharedBytes(plan.kind);
  HEARTH_ASSIGN_OR_RETURN(const ExpertXtOnGpu run, ExpertXtOnGpu::Create(c, plan, stream, copies));
  HEARTH_RETURN_IF_ERROR(CheckAnswer(c, run, stream));
  double total_sec = 0;
  for (auto _ : state) {
    HEARTH_ASSIGN_OR_RETURN(const double call_sec, SecondsPerCall(run, stream, copies));
    state.SetIterationTime(call_sec);
    total_sec += call_sec;
  }
  const double weights = 3.0 * 2560 * 640 * items;
  const double calls_per_sec = static_cast<double>(state.iterations()) / total_sec;
  state.counters["weights/s"] = weights * calls_per_sec;
  state.counters["integer_slots/weight"] =
      gpu.limits.multiprocessor_count * kIntegerLanes * kClockHz / (weights * calls_per_sec);
  state.counters["share_of_read_rate"] =
      static_cast<double>(items * c.layout.blob_bytes()) * calls_per_sec / read_rate;
  return absl::OkStatus();
}

// Arguments: experts, rows of each, XtDecodeKind.
void ExpertsOfFlashNext(benchmark::State& state, XtBits bits) {
  const absl::Status status = BenchExperts(state, bits);
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}
void Cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"experts", "rows", "kind"})
      ->UseManualTime()
      ->Iterations(20)
      ->Unit(benchmark::kMicrosecond);
  for (const int kind : {0, 1, 2}) {
    for (const int rows : {1, 2, 4, 8}) benchmark->Args({64, rows, kind});
    benchmark->Args({10, 1, kind});
  }
}
BENCHMARK_CAPTURE(ExpertsOfFlashNext, xt3, XtBits::All(3))->Apply(Cases);
BENCHMARK_CAPTURE(ExpertsOfFlashNext, xt2, XtBits::All(2))->Apply(Cases);
BENCHMARK_CAPTURE(ExpertsOfFlashNext, xt4, XtBits::All(4))->Apply(Cases);
BENCHMARK_CAPTURE(ExpertsOfFlashNext, xt4_3_3, XtBits{4, 3, 3})
    ->ArgNames({"experts", "rows", "kind"})
    ->Args({64, 1, 1})
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
