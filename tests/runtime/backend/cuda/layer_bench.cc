// Time of one layer's launches on a card at the published model's shapes, without its experts and
// without the exchange with the host: a graph of eight layers of one kind, us a layer, beside the
// bytes of its weights and states at the card's measured copy rate. Weights are random numbers of
// ordinary size.
//   gpu_layer_bench [gdn|qsa [ROWS]]     with ROWS: the whole layer alone, for a profiler
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/read_probe.h"
#include "pack/synth/synthetic_geometry.h"
#include "runtime/backend/cuda/backend_plan.h"
#include "runtime/backend/cuda/layer_launches.h"
#include "runtime/backend/cuda/sequence_state.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "tests/runtime/backend/cuda/pattern_weights.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 8;
constexpr uint32_t kPosition = 1000;
constexpr uint32_t kRounds = 15;
constexpr uint64_t kPatternBytes = 64_MiB;

ModelGeometry GeometryOf(MixerKind kind) {
  ModelGeometry g = NamedGeometry(SyntheticModel::kFlashNext);
  g.ngram = {};
  g.has_mtp = false;
  g.vocab_count = 256;
  g.layers.assign(kLayers, kind);
  return g;
}

// Two bf16 of the same size, which as fp32 is about as large: 1/128 to 1/64, of either sign.
// Divisions of numbers that are far from 1 take another way, so values matter for time.
uint32_t SmallPair(Prng& prng) {
  return (static_cast<uint32_t>(prng.Next()) & 0x807F807Fu) | 0x3C003C00u;
}

absl::Status FillSmall(const DeviceBuffer& buffer, const UniqueStream& stream) {
  constexpr uint64_t kPieceBytes = 32_MiB;
  Prng prng(9);
  std::vector<uint32_t> piece(kPieceBytes / 4);
  for (uint32_t& word : piece) word = SmallPair(prng);
  for (uint64_t at = 0; at < buffer.bytes(); at += kPieceBytes) {
    const uint64_t bytes = std::min(kPieceBytes, buffer.bytes() - at);
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(piece)).first(bytes), buffer, at, stream.view()));
  }
  return stream.Synchronize();
}

// Products with rows of values about 1 are of that size.
std::vector<uint32_t> RandomQ8(Prng& prng, uint32_t rows, uint32_t cols) {
  constexpr uint32_t kSmallScale = 0x08000800u;  // 2^-13 in fp16, twice
  const size_t blocks = cols / kQ8BlockValues;
  const size_t band_words = Q8BandBytes(cols) / 4;
  const size_t code_words = blocks * kBandRows * kQ8BlockValues / 4;
  std::vector<uint32_t> words(BandCount(rows) * band_words);
  for (size_t i = 0; i < words.size(); ++i) {
    const auto random = static_cast<uint32_t>(prng.Next());
    words[i] = i % band_words < code_words ? random : kSmallScale | (random & 0x03FF03FFu);
  }
  return words;
}

// A model of eight layers on a card, and one sequence that stands at kPosition.
class LayerBench {
 public:
  static absl::StatusOr<LayerBench> Create(const GpuInfo& gpu, MixerKind kind);

  // us a layer of a graph of all layers, of which `parts` are launched.
  struct Parts {
    bool first_half = true;
    bool before_experts = true;
    bool second_half = true;
  };
  absl::StatusOr<double> LayerUs(uint32_t rows, uint32_t pending_rows, const Parts& parts);
  double layer_bytes() const { return layer_bytes_; }

 private:
  LayerBench() = default;
  absl::Status PlaceAll(const GpuInfo& gpu, const ModelWeights& weights);
  absl::Status WriteMatrices();
  absl::Status WriteTable(uint32_t rows, uint32_t pending_rows);
  absl::Status Enqueue(const GpuPass& pass, const Parts& parts) const;

  template <class T>
  absl::Status Write(T* to, const std::vector<T>& values) {
    const auto offset = static_cast<uint64_t>(reinterpret_cast<std::byte*>(to) - memory_[1].data());
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(values)), memory_[1], offset, stream_[0].view()));
    return stream_[0].Synchronize();
  }

  ModelGeometry geometry_;
  BackendPlan plan_;
  std::vector<UniqueStream> stream_;
  std::vector<DeviceBuffer> memory_;  // weights, everything else
  GpuModelWeights weights_;
  GpuPassBuffers buffers_;
  PassImage image_;
  SequenceState state_;
  uint32_t* nan_flag_ = nullptr;
  double layer_bytes_ = 0;
};

absl::StatusOr<LayerBench> LayerBench::Create(const GpuInfo& gpu, MixerKind kind) {
  HEARTH_ASSIGN_OR_RETURN(AnonymousMapping pattern, AnonymousMapping::Create(kPatternBytes));
  LayerBench bench;
  ModelWeights weights;
  weights.geometry = bench.geometry_ = GeometryOf(kind);
  PatternWeights views(pattern.data());
  views.Fill(weights);
  bench.layer_bytes_ = static_cast<double>(views.layer_bytes());
  if (kind == MixerKind::kGdn) {  // the state of the delta rule is read and written
    const GdnGeometry& n = weights.geometry.gdn;
    bench.layer_bytes_ += 2.0 * 4 * n.value_dim() * n.key_head_dim;
  }
  HEARTH_RETURN_IF_ERROR(bench.PlaceAll(gpu, weights));
  return bench;
}

absl::Status LayerBench::PlaceAll(const GpuInfo& gpu, const ModelWeights& weights) {
  CudaBackendOptions options;
  options.gpu = gpu.id;
  options.context_tokens_max = 4096;
  options.recorded_windows = false;
  HEARTH_ASSIGN_OR_RETURN(plan_, PlanBackend(geometry_, options));
  HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu.id));
  stream_.push_back(std::move(stream));
  MemoryLayout layout;
  ReservePassBuffers(layout, buffers_, geometry_, plan_.shape);
  ReservePassImage(layout, image_, geometry_, plan_.shape);
  ReserveSequenceState(layout, state_, geometry_, SequenceShapeOf(plan_, 4096));
  layout.Reserve(nan_flag_, 1);
  for (const uint64_t bytes : {PlanWeightImage(weights).bytes, layout.bytes()}) {
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(gpu.id, bytes));
    HEARTH_RETURN_IF_ERROR(FillSmall(buffer, stream_[0]));
    memory_.push_back(std::move(buffer));
  }
  layout.Place(memory_[1].data());
  weights_ = PlaceWeights(weights, memory_[0].data());
  HEARTH_RETURN_IF_ERROR(WriteMatrices());
  return Write(state_.layer_table, state_.layers);
}

// The Q8 ones; all layers have the same numbers.
absl::Status LayerBench::WriteMatrices() {
  const auto matrices_of = [](const GpuLayerWeights& w) {
    return std::array{w.mixer_hc.down, w.mixer_hc.up,     w.moe_hc.down,    w.moe_hc.up,
                      w.gdn.qkv,       w.gdn.z,           w.gdn.out,        w.qsa.q,
                      w.qsa.k,         w.qsa.v,           w.qsa.o,          w.qsa.index_qk,
                      w.moe.shared_up, w.moe.shared_gate, w.moe.shared_down};
  };
  Prng prng(10);
  for (size_t i = 0; i < matrices_of(weights_.layers[0]).size(); ++i) {
    const DeviceMatrix first = matrices_of(weights_.layers[0])[i];
    if (first.rows == 0 || first.format != MatrixFormat::kQ8) continue;
    const std::vector<uint32_t> words = RandomQ8(prng, first.rows, first.cols);
    for (const GpuLayerWeights& layer : weights_.layers) {
      const auto offset = static_cast<uint64_t>(matrices_of(layer)[i].data - memory_[0].data());
      HEARTH_RETURN_IF_ERROR(
          CopyToDevice(std::as_bytes(std::span(words)), memory_[0], offset, stream_[0].view()));
    }
    HEARTH_RETURN_IF_ERROR(stream_[0].Synchronize());
  }
  return absl::OkStatus();
}

absl::Status LayerBench::WriteTable(uint32_t rows, uint32_t pending_rows) {
  std::vector<GpuSegment> segments(kPassSegmentsMax);
  segments[0] = {.layers = state_.layer_table,
                 .ngram_ring = state_.ngram_ring,
                 .row_begin = 0,
                 .rows = rows,
                 .base = kPosition,
                 .pending_rows = pending_rows,
                 .parity = 0};
  HEARTH_RETURN_IF_ERROR(Write(image_.segments, segments));
  HEARTH_RETURN_IF_ERROR(Write(image_.row_segment, std::vector<uint32_t>(rows)));
  return Write(image_.segment_count, std::vector<uint32_t>{1});
}

absl::Status LayerBench::Enqueue(const GpuPass& pass, const Parts& parts) const {
  HEARTH_RETURN_IF_ERROR(EnqueueEmbedding(pass, image_.embed));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    if (parts.first_half) {
      HEARTH_RETURN_IF_ERROR(EnqueueFirstHalf(pass, layer, nullptr));
      HEARTH_RETURN_IF_ERROR(LaunchRouter(RouterChoice(pass), pass.stream));
    }
    if (parts.before_experts) HEARTH_RETURN_IF_ERROR(EnqueueBeforeExperts(pass, layer));
    if (parts.second_half) HEARTH_RETURN_IF_ERROR(EnqueueSecondHalf(pass, layer, {}));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> LayerBench::LayerUs(uint32_t rows, uint32_t pending_rows,
                                           const Parts& parts) {
  HEARTH_RETURN_IF_ERROR(WriteTable(rows, pending_rows));
  const UniqueStream& stream = stream_[0];
  GpuPass pass{.geometry = geometry_,
               .weights = weights_,
               .buffers = buffers_,
               .nan_flag = nan_flag_,
               .stream = stream.view(),
               .qsa = plan_.qsa,
               .qsa_plan = plan_.qsa_plan,
               .table = {.segments = image_.segments,
                         .row_segment = image_.row_segment,
                         .segment_count = image_.segment_count,
                         .rows = rows,
                         .window_rows_max = plan_.shape.limits.window_rows_max,
                         .ring_rows = plan_.ring_rows},
               .rows = rows,
               .choose_blocks = false};
  HEARTH_ASSIGN_OR_RETURN(
      const UniqueGraph graph,
      UniqueGraph::Capture(stream.view(), [&](CudaStreamView) { return Enqueue(pass, parts); }));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  std::vector<double> us;
  for (uint32_t i = 0; i < kRounds + 3; ++i) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(graph.Launch(stream.view()));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double sec, UniqueEvent::SecondsBetween(start, stop));
    if (i >= 3) us.push_back(sec * 1e6 / kLayers);
  }
  std::nth_element(us.begin(), us.begin() + kRounds / 2, us.end());
  return us[kRounds / 2];
}

absl::Status Run(std::string_view only, uint32_t only_rows) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const double copy_rate, MeasureDeviceCopyRate(gpu));
  std::printf("%s: copies %.0f GB/s\n", gpu.name.c_str(), copy_rate * 1e-9);
  for (const MixerKind kind : {MixerKind::kGdn, MixerKind::kQsa}) {
    const std::string_view name = kind == MixerKind::kGdn ? "gdn" : "qsa";
    if (!only.empty() && only != name) continue;
    HEARTH_ASSIGN_OR_RETURN(LayerBench bench, LayerBench::Create(gpu, kind));
    for (const uint32_t rows : {1u, 4u, 8u}) {
      if (only_rows != 0 && rows != only_rows) continue;
      const double floor_us = bench.layer_bytes() / copy_rate * 1e6;
      HEARTH_ASSIGN_OR_RETURN(const double all_us, bench.LayerUs(rows, rows, {}));
      if (only_rows != 0) continue;
      HEARTH_ASSIGN_OR_RETURN(const double first_us,
                              bench.LayerUs(rows, rows, {true, false, false}));
      HEARTH_ASSIGN_OR_RETURN(const double before_us,
                              bench.LayerUs(rows, rows, {false, true, false}));
      HEARTH_ASSIGN_OR_RETURN(const double second_us,
                              bench.LayerUs(rows, rows, {false, false, true}));
      std::printf(
          "%s %u rows: %6.2f us a layer = %.2f of its floor %.2f (%.1f MB); alone: first half "
          "%.2f, before experts %.2f, second half %.2f\n",
          std::string(name).c_str(), rows, all_us, all_us / floor_us, floor_us,
          bench.layer_bytes() * 1e-6, first_us, before_us, second_us);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const absl::Status status = hearth::Run(argc > 1 ? argv[1] : "",
                                          argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 0);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
