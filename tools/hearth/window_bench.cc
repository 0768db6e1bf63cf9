#include "tools/hearth/window_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double SecondsFor(uint64_t bytes, double rate) {
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

}  // namespace

absl::StatusOr<double> MeasureLinkRate(const GpuInfo& gpu) {
  constexpr uint64_t kBytes = 256_MiB;
  constexpr int kRounds = 5;
  HEARTH_ASSIGN_OR_RETURN(const PinnedBuffer from, PinnedBuffer::Create(gpu.id, kBytes));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Create(gpu.id, kBytes));
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu.id));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu.id));
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(CopyToDevice(from.data(), to, 0, stream.view()));
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  return best;
}

double ExpertFloorSec(const LedgerCounts& layer, const MemoryRates& rates) {
  const uint64_t vram = layer.of(Service::kVram).bytes;
  const uint64_t pcie = layer.of(Service::kPcie).bytes;
  const uint64_t host = layer.of(Service::kCpu).bytes + layer.of(Service::kSsd).bytes;
  if (rates.card <= 0) return SecondsFor(vram + pcie + host, rates.dram);
  return std::max({SecondsFor(vram + pcie, rates.card), SecondsFor(pcie, rates.link),
                   SecondsFor(pcie + host, rates.dram)});
}

absl::Status TraceRoutes::Check(uint32_t expert_count, uint32_t ranks) const {
  const RoutingIdentity& of = trace_.identity;
  if (of.expert_count == expert_count && of.ranks == ranks && trace_.token_count() > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("routes: found ", trace_.token_count(), " tokens of ", of.ranks, " of ",
                   of.expert_count, " experts, expected ", ranks, " of ", expert_count));
}

std::span<const uint16_t> TraceRoutes::Chosen(LayerId layer, uint64_t token) const {
  const uint32_t columns = trace_.identity.layer_count;
  const uint64_t offset = layer.value / columns * kSegmentTokens;
  return trace_.of((token + offset) % trace_.token_count(), layer.value % columns);
}

std::span<const uint32_t> TraceRoutes::RoutesOf(LayerId layer, uint32_t rows, uint32_t ranks) {
  routes_.resize(size_t{rows} * ranks);
  for (uint32_t row = 0; row < rows; ++row) {
    const std::span<const uint16_t> chosen = Chosen(layer, token_ + row);
    std::copy_n(chosen.begin(), ranks, routes_.begin() + static_cast<ptrdiff_t>(row * ranks));
  }
  return routes_;
}

std::vector<float> TraceRoutes::Sightings(LayerId layer, uint64_t token_count,
                                          uint32_t expert_count) const {
  std::vector<float> sightings(expert_count);
  for (uint64_t token = 0; token < token_count; ++token) {
    for (const uint16_t expert : Chosen(layer, token)) sightings[expert] += 1;
  }
  return sightings;
}

absl::StatusOr<WindowTimes> TimeWindows(ModelRunner& runner, TraceRoutes& routes, Clock& clock,
                                        const MemoryRates& rates, const WindowPlanOptions& options,
                                        uint64_t& token) {
  const uint32_t total = options.warm_up_windows + options.windows;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          runner.CreateSequence(total * options.rows));
  WindowTimes times{.rows = options.rows, .window_count = options.windows};
  const double dense_rate = rates.card > 0 ? rates.card : rates.dram;
  std::vector<double> seconds, floors;
  std::vector<TokenId> tokens(options.rows);
  for (uint32_t w = 0; w < total; ++w) {
    for (uint32_t r = 0; r < options.rows; ++r) {
      tokens[r] = static_cast<TokenId>((token + r) * 7919 % runner.geometry().vocab_count);
    }
    routes.set_token(token);
    const std::span<const LedgerCounts> layers = runner.experts().tiers().ledger().layers();
    const std::vector<LedgerCounts> before(layers.begin(), layers.end());
    const uint64_t dense_before = runner.bytes_read().dense;
    const Segment segment{.sequence = sequence.get(), .tokens = tokens};
    WindowTracer* const tracer = w < options.warm_up_windows ? nullptr : options.tracer;
    if (tracer != nullptr) HEARTH_RETURN_IF_ERROR(tracer->Begin());
    const int64_t start_ns = clock.NowNs();
    HEARTH_RETURN_IF_ERROR(runner.RunTrunk({&segment, 1}, Phase::kWindow));
    HEARTH_RETURN_IF_ERROR(runner.Commit(*sequence, options.rows));
    const int64_t end_ns = clock.NowNs();
    if (tracer != nullptr) HEARTH_RETURN_IF_ERROR(tracer->End());
    token += options.rows;
    if (w < options.warm_up_windows) continue;
    times.dense_floor_sec = SecondsFor(runner.bytes_read().dense - dense_before, dense_rate);
    double floor = times.dense_floor_sec;
    for (size_t l = 0; l < layers.size(); ++l) {
      LedgerCounts layer = layers[l];
      layer -= before[l];
      floor += ExpertFloorSec(layer, rates);
      times.served += layer;
    }
    seconds.push_back(static_cast<double>(end_ns - start_ns) * 1e-9);
    floors.push_back(floor);
  }
  times.median_sec = Median(std::move(seconds));
  times.floor_sec = Median(std::move(floors));
  return times;
}

}  // namespace hearth::cli
