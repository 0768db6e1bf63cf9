// Speed of the GPU's XT encoder on matrices of Flash-Next, with error feedback, and what it means
// for the whole model: 120.8e9 routed weights. The mean squared error is that of unit Gaussians.
#include <cstdio>
#include <vector>

#include <benchmark/benchmark.h>
#include <cmath>

#include "gpu_kernels/ops/xt_encode.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr double kModelWeights = 120.8e9;

struct Matrix {
  const char* name;
  uint32_t rows;
  uint32_t cols;
  double share;  // of the model's routed weights
};
constexpr Matrix kMatrices[] = {{"gate_or_up_640x2560", 640, 2560, 2.0 / 3},
                                {"down_2560x640", 2560, 640, 1.0 / 3}};

void BenchEncode(benchmark::State& state, const GpuInfo& gpu, const Matrix& matrix, uint32_t bits) {
  const XtShape shape = {.rows = matrix.rows, .cols = matrix.cols, .bits = bits};
  // Streams for sixteen waves of blocks: the tail of the last one is small.
  const uint32_t streams = shape.group_count() * kXtLaneCount;
  const uint32_t matrices = 132 * 16 / streams + 1;
  const size_t values = size_t{shape.rows} * shape.cols;
  const float deviation = XtCodeOf(bits).level_deviation;
  Prng prng(bits);
  std::vector<float> targets(values);
  for (float& v : targets) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    v = static_cast<float>(radius * std::cos(6.283185307179586 * prng.Uniform())) * deviation;
  }
  // A feedback of zeros costs what any other does, and leaves the error that of the code alone.
  const std::vector<float> feedback(size_t{shape.block_count()} * (shape.block_count() - 1) / 2 *
                                    kXtBlockCols * kXtBlockCols);
  std::vector<std::vector<std::byte>> codes(matrices, std::vector<std::byte>(shape.code_bytes()));
  std::vector<float> errors(shape.rows);
  std::vector<XtGpuEncoder::Job> jobs;
  for (uint32_t m = 0; m < matrices; ++m) {
    jobs.push_back(
        {.targets = targets, .feedback = feedback, .codes = codes[m], .row_errors = errors});
  }
  auto encoder = XtGpuEncoder::Create(gpu, shape, matrices);
  if (!encoder.ok()) return state.SkipWithError(std::string(encoder.status().message()).c_str());
  for (auto _ : state) {
    const absl::Status status = (*encoder)->Encode(jobs);
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  double sum = 0;
  for (const float e : errors) sum += e;
  const double weights = static_cast<double>(values) * matrices;
  state.counters["weights/s"] =
      benchmark::Counter(weights, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["model_hours_of_this_part"] = benchmark::Counter(
      weights / (kModelWeights * matrix.share) * 3600,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["mse"] = sum / static_cast<double>(values) / (deviation * deviation);
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const absl::StatusOr<hearth::GpuList> list = hearth::ListGpus();
  if (!list.ok() || list->gpus.empty()) {
    std::printf("no GPU: %s\n",
                list.ok() ? list->reason.c_str() : std::string(list.status().message()).c_str());
    return 0;
  }
  for (const uint32_t bits : {2u, 3u, 4u}) {
    for (const hearth::Matrix& matrix : hearth::kMatrices) {
      benchmark::RegisterBenchmark(("xt" + std::to_string(bits) + "/" + matrix.name).c_str(),
                                   [gpu = list->gpus[0], &matrix, bits](benchmark::State& s) {
                                     hearth::BenchEncode(s, gpu, matrix, bits);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(2);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
