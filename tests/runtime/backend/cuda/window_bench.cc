// The dense path's share of a window at the published model's geometry, without experts: how long a
// window takes beside the bytes of dense weights that it reads at the card's measured copy rate,
// and what a half layer of exchange costs. Weights hold one pattern; only time is measured.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/read_probe.h"
#include "pack/synth/synthetic_geometry.h"
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "tests/runtime/backend/cuda/pattern_weights.h"

namespace hearth {
namespace {

constexpr uint64_t kPatternBytes = uint64_t{1} << 30;

// Without the n-gram table and the MTP head, which have files of their own.
ModelGeometry FlashNextGeometry() {
  ModelGeometry g = NamedGeometry(SyntheticModel::kFlashNext);
  g.ngram = {};
  g.has_mtp = false;
  return g;
}

double SecondsSince(Clock& clock, int64_t begin_ns) {
  return static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
}

struct WindowTime {
  double layers_us = 0;  // median of BeginTrunk to the last SecondHalf
  double head_us = 0;    // median of Head for all rows
};

absl::StatusOr<WindowTime> TimeWindows(Backend& backend, const ModelGeometry& g, Sequence& sequence,
                                       uint32_t rows, Clock& clock) {
  constexpr int kWindows = 24;
  const std::vector<TokenId> tokens(rows, 1);
  const Segment segment{.sequence = &sequence, .tokens = tokens};
  const std::span<float> logits = backend.logits_buffer().first(size_t{rows} * g.vocab_count);
  std::vector<double> layers, heads;
  for (int i = 0; i < kWindows; ++i) {
    const int64_t begin_ns = clock.NowNs();
    HEARTH_RETURN_IF_ERROR(backend.BeginTrunk({&segment, 1}, Phase::kWindow));
    for (uint32_t layer = 0; layer < g.layer_count(); ++layer) {
      HEARTH_RETURN_IF_ERROR(backend.FirstHalf(LayerId(layer)).status());
      HEARTH_RETURN_IF_ERROR(backend.SecondHalf(LayerId(layer), backend.expert_output_buffer()));
    }
    layers.push_back(SecondsSince(clock, begin_ns) * 1e6);
    const int64_t head_ns = clock.NowNs();
    HEARTH_RETURN_IF_ERROR(backend.Head(0, rows, logits));
    heads.push_back(SecondsSince(clock, head_ns) * 1e6);
    HEARTH_RETURN_IF_ERROR(backend.Commit(sequence, 1));
  }
  std::sort(layers.begin(), layers.end());
  std::sort(heads.begin(), heads.end());
  return WindowTime{layers[kWindows / 2], heads[kWindows / 2]};
}

absl::Status Run() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const double copy_rate, MeasureDeviceCopyRate(gpu));
  HEARTH_ASSIGN_OR_RETURN(AnonymousMapping memory, AnonymousMapping::Create(kPatternBytes));
  std::fill(memory.data().begin(), memory.data().end(), std::byte{0x80});
  ModelWeights weights;
  weights.geometry = FlashNextGeometry();
  PatternWeights pattern(memory.data());
  pattern.Fill(weights);
  const ModelGeometry& g = weights.geometry;
  const double floor_us = static_cast<double>(pattern.bytes()) / copy_rate * 1e6;
  std::printf("%s: copies %.0f GB/s; dense weights %.2f GB, floor %.0f us a window with its head\n",
              gpu.name.c_str(), copy_rate * 1e-9, static_cast<double>(pattern.bytes()) * 1e-9,
              floor_us);
  SteadyClock clock;
  for (const bool recorded : {false, true}) {
    CudaBackendOptions options;
    options.gpu = gpu.id;
    options.context_tokens_max = 16384;
    options.recorded_windows = recorded;
    const int64_t upload_ns = clock.NowNs();
    HEARTH_ASSIGN_OR_RETURN(
        std::unique_ptr<Backend> backend,
        CreateCudaBackend({.weights = weights, .clock = clock}, options, nullptr));
    std::printf("%s: made in %.2f s\n", recorded ? "recorded" : "launched",
                SecondsSince(clock, upload_ns));
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, backend->CreateSequence(16384));
    const std::vector<TokenId> prompt(256, 1);
    const uint32_t prompt_passes = recorded ? 32 : 2;  // beyond 2048 tokens attention is sparse
    for (uint32_t i = 0; i < prompt_passes; ++i) {
      const Segment segment{.sequence = sequence.get(), .tokens = prompt};
      const int64_t begin_ns = clock.NowNs();
      HEARTH_RETURN_IF_ERROR(backend->BeginTrunk({&segment, 1}, Phase::kPrompt));
      for (uint32_t layer = 0; layer < g.layer_count(); ++layer) {
        HEARTH_RETURN_IF_ERROR(backend->FirstHalf(LayerId(layer)).status());
        HEARTH_RETURN_IF_ERROR(
            backend->SecondHalf(LayerId(layer), backend->expert_output_buffer()));
      }
      (void)backend->residual();
      if (i + 1 == prompt_passes) {
        std::printf("prompt pass of 256 at %u: %.2f ms\n", i * 256,
                    SecondsSince(clock, begin_ns) * 1e3);
      }
      HEARTH_RETURN_IF_ERROR(backend->Commit(*sequence, 256));
      if (recorded && i == 0) {
        for (const uint32_t rows : {1u, 4u, 8u}) {
          HEARTH_ASSIGN_OR_RETURN(const WindowTime t,
                                  TimeWindows(*backend, g, *sequence, rows, clock));
          std::printf(
              "  near 256 tokens, rows %u: layers %7.0f us (%5.1f a layer), head %6.0f us\n", rows,
              t.layers_us, t.layers_us / g.layer_count(), t.head_us);
        }
      }
    }
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 8u, 9u}) {
      HEARTH_ASSIGN_OR_RETURN(const WindowTime t, TimeWindows(*backend, g, *sequence, rows, clock));
      const double all = t.layers_us + t.head_us;
      std::printf(
          "  rows %u: layers %7.0f us (%5.1f a layer), head %6.0f us, all %7.0f us = %.2f "
          "of the floor\n",
          rows, t.layers_us, t.layers_us / g.layer_count(), t.head_us, all, all / floor_us);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main() {
  const absl::Status status = hearth::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
