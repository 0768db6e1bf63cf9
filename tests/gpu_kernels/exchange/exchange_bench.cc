// What the exchange costs a layer on the card: each launch by itself when nothing has to be waited
// for, and whole windows with a host that answers at once, with an idle link and while uploads of
// experts keep it busy. Prints microseconds.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "runtime/base/status.h"
#include "tests/gpu_kernels/launch_chain.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 48;
constexpr uint32_t kHidden = 2560;
constexpr uint32_t kRanks = 10;
constexpr uint32_t kExperts = 512;
constexpr int64_t kWaitNs = 2'000'000'000;

// Copies experts to the card for as long as it lives.
class Uploads {
 public:
  static absl::StatusOr<std::unique_ptr<Uploads>> Start(GpuId gpu) {
    HEARTH_ASSIGN_OR_RETURN(PinnedBuffer from, PinnedBuffer::Create(gpu, kBytes));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer to, DeviceBuffer::Create(gpu, kBytes));
    HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu));
    return std::unique_ptr<Uploads>(new Uploads(std::move(from), std::move(to), std::move(stream)));
  }
  ~Uploads() {
    stop_ = true;
    thread_.join();
  }

 private:
  static constexpr uint64_t kBytes = 2764816;
  Uploads(PinnedBuffer from, DeviceBuffer to, UniqueStream stream)
      : from_(std::move(from)), to_(std::move(to)), stream_(std::move(stream)), thread_([this] {
          while (!stop_) {
            for (int i = 0; i < 16; ++i) (void)CopyToDevice(from_.data(), to_, 0, stream_.view());
            (void)stream_.Synchronize();
          }
        }) {}
  PinnedBuffer from_;
  DeviceBuffer to_;
  UniqueStream stream_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const GpuInfo& gpu, Clock& clock, bool table,
                                                       bool fp32) {
    const ExchangeShape shape = {.layer_count = kLayers,
                                 .rows_max = 9,
                                 .ranks = kRanks,
                                 .hidden = kHidden,
                                 .forms = {.quantized = !fp32, .fp32 = fp32},
                                 .expert_count = table ? kExperts : 0};
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WindowExchange> exchange,
                            WindowExchange::Create(gpu.id, shape, kWaitNs, clock));
    HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu.id));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(gpu.id, 1 << 20));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu.id));
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu.id));
    std::unique_ptr<Bench> bench(new Bench(clock, std::move(exchange), std::move(stream),
                                           std::move(memory), std::move(start), std::move(stop)));
    HEARTH_RETURN_IF_ERROR(bench->FillRoutes());
    return bench;
  }

  WindowExchange& exchange() { return *exchange_; }
  PublishArgs Args(uint32_t rows) const {
    const auto at = [&](uint64_t offset) { return memory_.data() + offset; };
    return {.expert = reinterpret_cast<const uint32_t*>(at(0)),
            .weight = reinterpret_cast<const float*>(at(4096)),
            .u = {.q = reinterpret_cast<const int8_t*>(at(1 << 17)),
                  .scale = reinterpret_cast<const float*>(at(2 << 17)),
                  .sum16 = reinterpret_cast<const int32_t*>(at(3 << 17)),
                  .rows = rows,
                  .cols = kHidden},
            .x = reinterpret_cast<const float*>(at(4 << 17)),
            .rows = rows};
  }

  using Layer = std::function<absl::Status(LayerId, CudaStreamView)>;
  using Host = std::function<absl::Status(ExchangeHost&, LayerId)>;

  // Microseconds of a layer whose launches are `layer`: the best of a few windows, without what a
  // window costs once. `before`: what the host posts of each layer before the launch; `during`:
  // what it does while the card works.
  absl::StatusOr<double> MicrosecondsPerLayer(const Layer& layer, const Host& before,
                                              const Host& during) {
    double us[2] = {1e9, 1e9};
    const uint32_t counts[2] = {8, kLayers};
    for (int which = 0; which < 2; ++which) {
      HEARTH_ASSIGN_OR_RETURN(
          const UniqueGraph graph,
          UniqueGraph::Capture(stream_.view(), [&](CudaStreamView on) -> absl::Status {
            HEARTH_RETURN_IF_ERROR(LaunchBeginWindow(*exchange_, on));
            for (uint32_t i = 0; i < counts[which]; ++i) {
              HEARTH_RETURN_IF_ERROR(layer(LayerId(i), on));
            }
            return absl::OkStatus();
          }));
      for (int round = 0; round < 30; ++round) {
        HEARTH_ASSIGN_OR_RETURN(const double once, RunWindow(graph, counts[which], before, during));
        us[which] = std::min(us[which], once);
      }
    }
    return (us[1] - us[0]) / (counts[1] - counts[0]);
  }

  Clock& clock() { return clock_; }

 private:
  Bench(Clock& clock, std::unique_ptr<WindowExchange> exchange, UniqueStream stream,
        DeviceBuffer memory, UniqueEvent start, UniqueEvent stop)
      : clock_(clock),
        exchange_(std::move(exchange)),
        stream_(std::move(stream)),
        memory_(std::move(memory)),
        start_(std::move(start)),
        stop_(std::move(stop)) {}

  absl::Status FillRoutes() {
    std::vector<uint32_t> experts(kExchangeEntriesMax);
    for (uint32_t i = 0; i < experts.size(); ++i) experts[i] = i * 37 % kExperts;
    HEARTH_RETURN_IF_ERROR(FillBytes(memory_, std::byte{1}, stream_.view()));
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(experts)), memory_, 0, stream_.view()));
    return stream_.Synchronize();
  }

  absl::StatusOr<double> RunWindow(const UniqueGraph& graph, uint32_t layers, const Host& before,
                                   const Host& during) {
    ExchangeHost& host = exchange_->host();
    host.BeginWindow();
    for (uint32_t i = 0; i < layers && before; ++i) {
      HEARTH_RETURN_IF_ERROR(before(host, LayerId(i)));
    }
    HEARTH_RETURN_IF_ERROR(start_.Record(stream_.view()));
    HEARTH_RETURN_IF_ERROR(graph.Launch(stream_.view()));
    HEARTH_RETURN_IF_ERROR(stop_.Record(stream_.view()));
    for (uint32_t i = 0; i < layers && during; ++i) {
      HEARTH_RETURN_IF_ERROR(during(host, LayerId(i)));
    }
    HEARTH_RETURN_IF_ERROR(stream_.Synchronize());
    HEARTH_RETURN_IF_ERROR(host.CardError());
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start_, stop_));
    return seconds * 1e6;
  }

  Clock& clock_;
  std::unique_ptr<WindowExchange> exchange_;
  UniqueStream stream_;
  DeviceBuffer memory_;
  UniqueEvent start_;
  UniqueEvent stop_;
};

// A list of `count` experts, a row each.
struct BenchList {
  explicit BenchList(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      items.push_back({reinterpret_cast<const std::byte*>(uint64_t{1 + i} * 64), i, 1});
      entries.push_back({i / kRanks, i});
    }
  }
  std::vector<ExpertFfnItem> items;
  std::vector<ExpertFfnEntry> entries;
  ExpertList view() const { return {items, entries}; }
};

absl::Status Print(const char* what, uint32_t rows, const absl::StatusOr<double>& us) {
  HEARTH_RETURN_IF_ERROR(us.status());
  std::printf("%-66s %2u rows %7.2f us\n", what, rows, *us);
  return absl::OkStatus();
}

absl::Status ListMode(const GpuInfo& gpu, Clock& clock, uint32_t rows) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench,
                          Bench::Create(gpu, clock, false, false));
  const WindowExchange& x = bench->exchange();
  const BenchList list(rows * kRanks);
  const Bench::Host post = [&](ExchangeHost& host, LayerId layer) {
    return host.PostHits(layer, list.view(), {});
  };
  const Bench::Host post_all = [&](ExchangeHost& host, LayerId layer) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(host.PostHits(layer, list.view(), {.late = true, .outputs = true}));
    HEARTH_RETURN_IF_ERROR(host.PostLate(layer, list.view()));
    host.PostOutputs(layer);
    return absl::OkStatus();
  };
  const Bench::Layer take = [&](LayerId layer, CudaStreamView on) {
    return LaunchTakeHits(x, layer, rows, on);
  };
  const Bench::Layer take_late = [&](LayerId layer, CudaStreamView on) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(LaunchTakeHits(x, layer, rows, on));
    return LaunchTakeLate(x, layer, rows, on);
  };
  const Bench::Layer take_outputs = [&](LayerId layer, CudaStreamView on) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(LaunchTakeHits(x, layer, rows, on));
    return LaunchAwaitOutputs(x, layer, on);
  };
  const Bench::Layer publish = [&](LayerId layer, CudaStreamView on) {
    return LaunchPublish(x, layer, bench->Args(rows), on);
  };
  const Bench::Layer routes = [&](LayerId layer, CudaStreamView on) {
    return LaunchPublishRoutes(x, layer, bench->Args(rows).expert, bench->Args(rows).weight, rows,
                               on);
  };
  const Bench::Layer round = [&](LayerId layer, CudaStreamView on) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(LaunchPublishRoutes(x, layer, bench->Args(rows).expert,
                                               bench->Args(rows).weight, rows, on));
    return LaunchTakeHits(x, layer, rows, on);
  };
  const Bench::Host answer = [&](ExchangeHost& host, LayerId layer) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(
        host.AwaitRoutes(layer, rows, bench->clock().NowNs() + kWaitNs).status());
    return host.PostHits(layer, list.view(), {});
  };
  HEARTH_RETURN_IF_ERROR(Print("routes", rows, bench->MicrosecondsPerLayer(routes, {}, {})));
  HEARTH_RETURN_IF_ERROR(
      Print("routes and rows (NVFP4)", rows, bench->MicrosecondsPerLayer(publish, {}, {})));
  HEARTH_RETURN_IF_ERROR(
      Print("take hits, there already", rows, bench->MicrosecondsPerLayer(take, post, {})));
  HEARTH_RETURN_IF_ERROR(Print("take hits; late: none follows", rows,
                               bench->MicrosecondsPerLayer(take_late, post, {})));
  HEARTH_RETURN_IF_ERROR(Print("take hits, take late, both there", rows,
                               bench->MicrosecondsPerLayer(take_late, post_all, {})));
  HEARTH_RETURN_IF_ERROR(Print("take hits; outputs: none follow", rows,
                               bench->MicrosecondsPerLayer(take_outputs, post, {})));
  HEARTH_RETURN_IF_ERROR(Print("take hits, await outputs, both there", rows,
                               bench->MicrosecondsPerLayer(take_outputs, post_all, {})));
  return Print("routes -> host -> hits, the host answers at once", rows,
               bench->MicrosecondsPerLayer(round, {}, answer));
}

absl::Status TableMode(const GpuInfo& gpu, Clock& clock, uint32_t rows, bool resident) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench,
                          Bench::Create(gpu, clock, true, false));
  const WindowExchange& x = bench->exchange();
  if (resident) {
    for (uint32_t i = 0; i < kLayers * kExperts; ++i) {
      bench->exchange().host().SetEntry(LayerId(i / kExperts), ExpertId(i % kExperts),
                                        uint64_t{1 + i} * 64);
    }
  }
  const Bench::Layer find = [&](LayerId layer, CudaStreamView on) {
    return LaunchPublishRoutes(x, layer, bench->Args(rows).expert, bench->Args(rows).weight, rows,
                               on);
  };
  const Bench::Layer all = [&](LayerId layer, CudaStreamView on) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(LaunchPublish(x, layer, bench->Args(rows), on));
    return LaunchAwaitOutputs(x, layer, on);
  };
  const Bench::Host outputs = [&](ExchangeHost& host, LayerId layer) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(
        host.AwaitRoutes(layer, rows, bench->clock().NowNs() + kWaitNs).status());
    if (!resident) host.PostOutputs(layer);
    return absl::OkStatus();
  };
  if (resident) {
    HEARTH_RETURN_IF_ERROR(
        Print("table: routes, all are hits", rows, bench->MicrosecondsPerLayer(find, {}, {})));
  }
  return Print(resident ? "table: routes, rows, outputs; all are hits"
                        : "table: routes, rows, outputs; none is, the host answers at once",
               rows, bench->MicrosecondsPerLayer(all, {}, outputs));
}

// From node to node of a graph of small kernels, by the difference of two lengths.
absl::Status NodeToNode(const GpuInfo& gpu, uint32_t blocks, bool overlaps) {
  const uint32_t count = blocks * kChainThreads;
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer even, DeviceBuffer::Create(gpu.id, count * 4));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer odd, DeviceBuffer::Create(gpu.id, count * 4));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu.id));
  HEARTH_RETURN_IF_ERROR(FillBytes(even, std::byte{1}, stream.view()));
  const auto words = [](const DeviceBuffer& b) { return reinterpret_cast<uint32_t*>(b.data()); };
  double us[2] = {1e9, 1e9};
  const uint32_t links[2] = {20, 120};
  for (int which = 0; which < 2; ++which) {
    HEARTH_ASSIGN_OR_RETURN(
        const UniqueGraph graph,
        UniqueGraph::Capture(stream.view(), [&](CudaStreamView on) -> absl::Status {
          for (uint32_t i = 0; i < links[which]; i += 2) {
            HEARTH_RETURN_IF_ERROR(LaunchChainLink(words(even), words(odd), count, overlaps, on));
            HEARTH_RETURN_IF_ERROR(LaunchChainLink(words(odd), words(even), count, overlaps, on));
          }
          return absl::OkStatus();
        }));
    for (int round = 0; round < 30; ++round) {
      HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
      HEARTH_RETURN_IF_ERROR(graph.Launch(stream.view()));
      HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
      HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
      us[which] = std::min(us[which], seconds * 1e6);
    }
  }
  std::printf("node to node, %3u blocks, %-11s %6.2f us; 20 nodes %6.2f us\n", blocks,
              overlaps ? "overlapping" : "plain", (us[1] - us[0]) / (links[1] - links[0]), us[0]);
  return absl::OkStatus();
}

absl::Status Run() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const GpuInfo& gpu = list.gpus[0];
  SteadyClock clock;
  for (const uint32_t blocks : {1u, 264u}) {
    HEARTH_RETURN_IF_ERROR(NodeToNode(gpu, blocks, false));
    HEARTH_RETURN_IF_ERROR(NodeToNode(gpu, blocks, true));
  }
  for (const bool loaded : {false, true}) {
    std::unique_ptr<Uploads> uploads;
    if (loaded) {
      HEARTH_ASSIGN_OR_RETURN(uploads, Uploads::Start(gpu.id));
    }
    std::printf("link %s\n", loaded ? "busy with uploads" : "idle");
    for (const uint32_t rows : {1u, 4u, 9u}) {
      HEARTH_RETURN_IF_ERROR(ListMode(gpu, clock, rows));
      HEARTH_RETURN_IF_ERROR(TableMode(gpu, clock, rows, true));
      HEARTH_RETURN_IF_ERROR(TableMode(gpu, clock, rows, false));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main() {
  const absl::Status status = hearth::Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
