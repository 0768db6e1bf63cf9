// Time of each launch of sparse attention at the full geometry: windows of 1 to 9 rows over short
// and long contexts, and a prompt of 2048 rows. Launches of many layers are recorded in one graph,
// each layer with keys of its own, so that none finds its bytes in a cache; the times are per
// layer, beside the bytes that the launch must read at the card's measured read rate.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/ops/read_probe.h"
#include "tests/gpu_kernels/attention/qsa_case.h"

namespace hearth {
namespace {

constexpr uint32_t kRuns = 7;
constexpr uint64_t kPatternCount = 1u << 20;

struct Setting {
  uint32_t context = 0;  // position after the last row
  uint32_t rows = 0;
  uint32_t layers = 0;
  KvFormat format = KvFormat::kBf16;
};

// Random values, repeated: what the kernels read costs more to make than to read.
template <class T>
std::vector<T> Repeated(const std::vector<T>& pattern, uint64_t count) {
  std::vector<T> values(count);
  for (uint64_t at = 0; at < count; at += pattern.size()) {
    std::copy_n(pattern.begin(), std::min<uint64_t>(pattern.size(), count - at),
                values.begin() + static_cast<ptrdiff_t>(at));
  }
  return values;
}

std::vector<std::byte> RandomBf16(Prng* prng, uint64_t count) {
  std::vector<std::byte> bytes(count * 2);
  for (uint64_t i = 0; i < count; ++i) {
    const uint16_t bits = Bf16Of(RandomFloat(prng, 1.5f));
    std::memcpy(&bytes[i * 2], &bits, 2);
  }
  return bytes;
}

// One sequence of `layers` layers. K and V are shared by the layers, which choose different
// positions of them; each layer has its own block keys.
class Bench {
 public:
  Bench(const Setting& setting, const GpuInfo& gpu, const UniqueStream& stream)
      : setting_(setting), gpu_(gpu), stream_(stream) {
    desc_ = {.attention = FlashNextAttention(),
             .norm_epsilon = 1e-6f,
             .kv_format = setting.format,
             .rows_max = setting.rows,
             .context_max = setting.context};
    plan_ = *PlanQsa(desc_);
    MakeState();
    MakeRows();
  }
  const QsaDesc& desc() const { return desc_; }

  absl::Status Append(uint32_t layer) const {
    QsaAppendArgs args = append_;
    args.layer = layer;
    return LaunchQsaAppend(desc_, args, stream_.view());
  }
  absl::Status Select(uint32_t layer) const {
    return LaunchQsaSelect(desc_, plan_,
                           {.pass = append_.pass,
                            .layer = layer,
                            .index = append_.index,
                            .workspace = workspace_->data()},
                           stream_.view());
  }
  absl::Status Attend(uint32_t layer) const {
    return LaunchQsaAttend(desc_, plan_,
                           {.pass = append_.pass,
                            .layer = layer,
                            .qg = append_.qg,
                            .workspace = workspace_->data(),
                            .out = out_->data(),
                            .q = q_->data(),
                            .scale = scale_->data(),
                            .sum16 = sum16_->data()},
                           stream_.view());
  }

  // Microseconds of one layer: the median of a few launches of a graph of all layers.
  absl::StatusOr<double> Time(const std::function<absl::Status(uint32_t layer)>& launch) const {
    HEARTH_ASSIGN_OR_RETURN(const UniqueGraph graph,
                            UniqueGraph::Capture(stream_.view(), [&](CudaStreamView) {
                              for (uint32_t l = 0; l < setting_.layers; ++l) {
                                HEARTH_RETURN_IF_ERROR(launch(l));
                              }
                              return absl::OkStatus();
                            }));
    std::vector<double> times;
    for (uint32_t run = 0; run < kRuns; ++run) {
      HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu_.id));
      HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu_.id));
      HEARTH_RETURN_IF_ERROR(start.Record(stream_.view()));
      HEARTH_RETURN_IF_ERROR(graph.Launch(stream_.view()));
      HEARTH_RETURN_IF_ERROR(stop.Record(stream_.view()));
      HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
      times.push_back(seconds * 1e6 / setting_.layers);
    }
    std::sort(times.begin(), times.end());
    return times[kRuns / 2];
  }

 private:
  float* Floats(const std::vector<float>& values) {
    floats_.push_back(std::make_unique<DeviceArray<float>>(gpu_, stream_, values));
    return floats_.back()->data();
  }
  void MakeState() {
    Prng prng(1);
    const QsaStateBytes bytes = QsaStateBytesOf(desc_, kRingRows);
    const std::vector<std::byte> cache = Repeated(RandomBf16(&prng, kPatternCount), bytes.kv);
    k_ = std::make_unique<DeviceArray<std::byte>>(gpu_, stream_, cache);
    v_ = std::make_unique<DeviceArray<std::byte>>(gpu_, stream_, cache);
    float* const scales =
        Floats(Repeated(RandomFloats(&prng, 1024, 0.01f), std::max<uint64_t>(bytes.kv_scale, 4)));
    const std::vector<float> pattern = RandomFloats(&prng, kPatternCount + 128, 1.7f);
    const std::vector<float> keys = Repeated(pattern, bytes.block_keys / 4);
    std::vector<GpuLayerState> layers;
    for (uint32_t l = 0; l < setting_.layers; ++l) {
      layers.push_back({.k = k_->data(),
                        .v = v_->data(),
                        .k_scale = scales,
                        .v_scale = scales,
                        .raw_keys = Floats(std::vector<float>(bytes.raw_keys / 4, 0.5f)),
                        .block_keys = Floats(keys)});
    }
    layers_ = std::make_unique<DeviceArray<GpuLayerState>>(gpu_, stream_, layers);
  }
  void MakeRows() {
    Prng prng(2);
    const AttentionGeometry& a = desc_.attention;
    const uint32_t rows = setting_.rows;
    std::vector<GpuSegment> segments(kPassSegmentsMax);
    segments[0] = {
        .layers = layers_->data(), .row_begin = 0, .rows = rows, .base = setting_.context - rows};
    segments_ = std::make_unique<DeviceArray<GpuSegment>>(gpu_, stream_, segments);
    std::vector<uint32_t> row_segment(rows + 1);
    row_segment.back() = 1;
    row_segment_ = std::make_unique<DeviceArray<uint32_t>>(gpu_, stream_, row_segment);
    const auto random = [&](size_t width) {
      return Floats(Repeated(RandomFloats(&prng, kPatternCount + 64, 2), size_t{rows} * width));
    };
    const size_t kv = size_t{a.kv_head_count} * a.head_dim;
    append_ = {.pass = {.segments = segments_->data(),
                        .row_segment = row_segment_->data(),
                        .segment_count = row_segment_->data() + rows,
                        .rows = rows,
                        .window_rows_max = 9,
                        .ring_rows = kRingRows},
               .layer = 0,
               .qg = random(size_t{a.head_count} * 2 * a.head_dim),
               .k = random(kv),
               .v = random(kv),
               .index = random(size_t{a.indexer_head_count + 1} * a.indexer_head_dim),
               .q_norm = Floats(RandomFloats(&prng, a.head_dim, 0.3f)),
               .k_norm = Floats(RandomFloats(&prng, a.head_dim, 0.3f)),
               .index_q_norm = Floats(RandomFloats(&prng, a.indexer_head_dim, 0.3f)),
               .index_k_norm = Floats(RandomFloats(&prng, a.indexer_head_dim, 0.3f)),
               .cos = random(a.rotary_dim / 2),
               .sin = random(a.rotary_dim / 2),
               .block_cos = random(a.rotary_dim / 2),
               .block_sin = random(a.rotary_dim / 2)};
    const uint32_t width = a.head_count * a.head_dim;
    const size_t blocks = size_t{rows} * ActivationBlocks(width);
    out_ = std::make_unique<DeviceArray<float>>(gpu_, stream_,
                                                std::vector<float>(size_t{rows} * width));
    scale_ = std::make_unique<DeviceArray<float>>(gpu_, stream_, std::vector<float>(blocks));
    q_ = std::make_unique<DeviceArray<int8_t>>(gpu_, stream_, std::vector<int8_t>(blocks * 32));
    sum16_ =
        std::make_unique<DeviceArray<int32_t>>(gpu_, stream_, std::vector<int32_t>(blocks * 2));
    workspace_ = std::make_unique<DeviceArray<std::byte>>(
        gpu_, stream_, std::vector<std::byte>(plan_.workspace_bytes));
  }

  static constexpr uint32_t kRingRows = 32;
  Setting setting_;
  GpuInfo gpu_;
  const UniqueStream& stream_;
  QsaDesc desc_;
  QsaPlan plan_;
  std::vector<std::unique_ptr<DeviceArray<float>>> floats_;
  std::unique_ptr<DeviceArray<std::byte>> k_, v_, workspace_;
  std::unique_ptr<DeviceArray<GpuLayerState>> layers_;
  std::unique_ptr<DeviceArray<GpuSegment>> segments_;
  std::unique_ptr<DeviceArray<uint32_t>> row_segment_;
  std::unique_ptr<DeviceArray<float>> out_, scale_;
  std::unique_ptr<DeviceArray<int8_t>> q_;
  std::unique_ptr<DeviceArray<int32_t>> sum16_;
  QsaAppendArgs append_;
};

uint64_t PositionsOf(const AttentionGeometry& a, uint32_t position) {
  const uint64_t all = uint64_t{position} + 1;
  return all / a.block_tokens <= a.block_count_max
             ? all
             : uint64_t{a.block_count_max} * a.block_tokens + all % a.block_tokens;
}

absl::Status PrintLine(const Setting& setting, double read_rate, const GpuInfo& gpu,
                       const UniqueStream& stream) {
  const Bench bench(setting, gpu, stream);
  const AttentionGeometry& a = bench.desc().attention;
  HEARTH_ASSIGN_OR_RETURN(const double append,
                          bench.Time([&](uint32_t l) { return bench.Append(l); }));
  HEARTH_ASSIGN_OR_RETURN(const double select,
                          bench.Time([&](uint32_t l) { return bench.Select(l); }));
  HEARTH_ASSIGN_OR_RETURN(const double attend,
                          bench.Time([&](uint32_t l) { return bench.Attend(l); }));
  HEARTH_ASSIGN_OR_RETURN(const double all, bench.Time([&](uint32_t l) {
    HEARTH_RETURN_IF_ERROR(bench.Append(l));
    HEARTH_RETURN_IF_ERROR(bench.Select(l));
    return bench.Attend(l);
  }));
  double positions = 0;
  for (uint32_t i = 0; i < setting.rows; ++i) {
    positions += static_cast<double>(PositionsOf(a, setting.context - setting.rows + i));
  }
  const double value_bytes = setting.format == KvFormat::kInt8 ? 1 : 2;
  const double kv_bytes = positions * 2 * a.kv_head_count * a.head_dim * value_bytes;
  const double key_bytes = QsaMustSelect(a, setting.context - 1)
                               ? static_cast<double>(QsaStateBytesOf(bench.desc(), 32).block_keys)
                               : 0;
  const double flops = positions * a.head_count * a.head_dim * 4;
  std::printf("%4s %7u %5u | %8.2f %9.2f %9.2f %9.2f | %8.2f %8.2f | %7.2f\n",
              setting.format == KvFormat::kInt8 ? "int8" : "bf16", setting.context, setting.rows,
              append, select, attend, all, key_bytes / read_rate * 1e6, kv_bytes / read_rate * 1e6,
              flops / attend * 1e-6);
  return absl::OkStatus();
}

// `only`: of the table; 0 for all.
struct Only {
  uint32_t context = 0;
  uint32_t rows = 0;
};

absl::Status Run(const Only& only) {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const double read_rate, MeasureDeviceReadRate(gpu));
  std::printf("%s, read rate %.2f TB/s\n", gpu.name.c_str(), read_rate * 1e-12);
  std::printf(
      " fmt context  rows |   append    select    attend       all us |  floors: keys, kv "
      "us | TFLOP/s of attend\n");
  for (KvFormat format : {KvFormat::kBf16, KvFormat::kInt8}) {
    for (uint32_t context : {1024u, 8192u, 32768u, 262144u}) {
      const uint32_t layers = context > 32768 ? 6 : 32;
      for (uint32_t rows : {1u, 4u, 8u}) {
        if (only.context != 0 && (only.context != context || only.rows != rows)) continue;
        HEARTH_RETURN_IF_ERROR(PrintLine({context, rows, layers, format}, read_rate, gpu, stream));
      }
    }
    for (uint32_t context : {2048u, 32768u}) {
      if (only.context != 0 && (only.context != context || only.rows != 2048)) continue;
      HEARTH_RETURN_IF_ERROR(PrintLine({context, 2048, 2, format}, read_rate, gpu, stream));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

// Arguments, both or none: the context and the rows of the only line to print.
int main(int argc, char** argv) {
  hearth::Only only;
  if (argc == 3) {
    only = {static_cast<uint32_t>(std::atoi(argv[1])), static_cast<uint32_t>(std::atoi(argv[2]))};
  }
  const absl::Status status = hearth::Run(only);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
