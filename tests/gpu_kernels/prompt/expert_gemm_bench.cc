// A prompt of 4,096 tokens through one layer's experts on tensor cores: time beside its roofline,
// the larger of the weights' bytes over the card's read rate and the operations over its int8 rate.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/prompt/expert_gemm_case.h"

namespace hearth {
namespace {

constexpr double kInt8OpsPerSec = 1979e12;  // H200, dense, its data sheet

// `experts` experts of which each row chooses ten, in items of at most so many rows.
ExpertFfnCase PromptCase(uint32_t rows, uint32_t experts, uint32_t item_rows_max) {
  Prng prng(7);
  const ExpertLayout layout{ExpertFormat::kNvfp4, 2560, 640};
  ExpertFfnCase c(layout, Quantized(RandomFloats(&prng, rows * 2560, 1), rows, 2560));
  const ExpertBlob blob = ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 2560, 640);
  const double mean = 10.0 * rows / experts;
  for (uint32_t i = 0; i < experts; ++i) {
    const double share = 0.5 + prng.Uniform();
    const auto count = static_cast<uint32_t>(std::max(1.0, mean * share));
    for (uint32_t left = std::min(count, rows); left > 0; left -= std::min(left, item_rows_max)) {
      c.AddItem(&prng, blob, std::min(left, item_rows_max));
    }
  }
  c.Finish(&prng);
  return c;
}

// Median seconds of a launch.
template <class Run>
absl::StatusOr<double> TimeOf(const Run& run, const UniqueStream& stream) {
  constexpr uint32_t kRounds = 15;
  HEARTH_RETURN_IF_ERROR(run.Launch(stream));
  HEARTH_RETURN_IF_ERROR(stream.Synchronize());
  std::vector<double> times;
  for (uint32_t i = 0; i < kRounds; ++i) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(run.Launch(stream));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(times.emplace_back(), UniqueEvent::SecondsBetween(start, stop));
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// kWindow: those of windows, for comparison.
enum class Kernels { kWindow, kWarp, kWarpgroup };

absl::StatusOr<double> SecondsOf(const GpuInfo& gpu, Kernels kernels, const ExpertFfnCase& c) {
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  if (kernels == Kernels::kWindow) {
    HEARTH_ASSIGN_OR_RETURN(const ExpertFfnOnGpu run, ExpertFfnOnGpu::Create(c, gpu, stream));
    return TimeOf(run, stream);
  }
  const ExpertGemmKind kind =
      kernels == Kernels::kWarp ? ExpertGemmKind::kWarp : ExpertGemmKind::kWarpgroup;
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertGemmOnGpu run,
      ExpertGemmOnGpu::Create(c, stream, kind, ExpertGemmColumnsMax(kind, gpu.limits)));
  return TimeOf(run, stream);
}

absl::Status Bench(const GpuInfo& gpu, Kernels kernels, uint32_t rows, uint32_t experts) {
  HEARTH_ASSIGN_OR_RETURN(const double read_rate, MeasureDeviceReadRate(gpu));
  const ExpertFfnCase c =
      PromptCase(rows, experts, kernels == Kernels::kWindow ? kExpertRowsMax : rows);
  HEARTH_ASSIGN_OR_RETURN(const double seconds, SecondsOf(gpu, kernels, c));
  const double operations = 2.0 * 3 * 2560 * 640 * static_cast<double>(c.entries.size());
  const double bytes = static_cast<double>(experts * c.layout.blob_bytes());
  const double floor = std::max(bytes / read_rate, operations / kInt8OpsPerSec);
  const char* const names[] = {"window", "warp", "warpgroup"};
  std::printf("%-10s %6u %8u %8zu %10.1f %10.1f %10.1f %9.1f%%\n", names[static_cast<int>(kernels)],
              rows, experts, c.entries.size(), seconds * 1e6, floor * 1e6,
              operations / seconds * 1e-12, floor / seconds * 100);
  return absl::OkStatus();
}

absl::Status BenchAll(std::span<const std::pair<uint32_t, uint32_t>> cases) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  std::printf(
      "kernels      rows  experts  entries         us   floor us     Tera-op/s  roofline\n");
  constexpr uint32_t kWindowKernelsRowsMax = 512;  // beyond them nobody would take those
  const bool has_warpgroups = ExpertGemmKindFor(gpu.limits) == ExpertGemmKind::kWarpgroup;
  for (const auto& [rows, experts] : cases) {
    for (const Kernels kernels : {Kernels::kWindow, Kernels::kWarp, Kernels::kWarpgroup}) {
      if (kernels == Kernels::kWindow && rows > kWindowKernelsRowsMax) continue;
      if (kernels == Kernels::kWarpgroup && !has_warpgroups) continue;
      HEARTH_RETURN_IF_ERROR(Bench(gpu, kernels, rows, experts));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

// usage: gpu_prompt_bench [ROWS EXPERTS]: only that case.
int main(int argc, char** argv) {
  using Case = std::pair<uint32_t, uint32_t>;
  std::vector<Case> cases = {{128, 512},  {256, 512},  {1024, 512},
                             {2048, 512}, {4096, 512}, {4096, 205}};
  if (argc == 3) {
    cases = {
        {static_cast<uint32_t>(std::atoi(argv[1])), static_cast<uint32_t>(std::atoi(argv[2]))}};
  }
  const absl::Status status = hearth::BenchAll(cases);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
