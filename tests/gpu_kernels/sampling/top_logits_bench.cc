// Time of the largest logits on the card, at Flash-Next's vocabulary, beside what they replace: the
// copy of whole rows to the host, and the sampler's look at them there.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/sampling/top_logits.h"
#include "runtime/base/clock.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/model/sampling/sampler.h"

namespace hearth {
namespace {

constexpr uint32_t kVocab = 248'320;
constexpr uint32_t kLaunches = 50;
constexpr int kRounds = 9;

// Seconds of one of `launches` enqueued by `enqueue`, by the card's clock: the median.
absl::StatusOr<double> CardSeconds(const UniqueStream& stream, uint32_t launches,
                                   absl::FunctionRef<absl::Status()> enqueue) {
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(enqueue());
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double s, UniqueEvent::SecondsBetween(start, stop));
    seconds.push_back(s / launches);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

absl::StatusOr<double> SamplerSeconds(std::span<const float> logits, uint32_t count, Clock& clock) {
  SamplerConfig config{.vocab_count = kVocab};
  if (count > 1) {
    config.params.temperature = 1;
    config.params.top_k = count;
  }
  HEARTH_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(std::move(config)));
  double best = 1;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = clock.NowNs();
    for (size_t at = 0; at < logits.size(); at += kVocab) {
      HEARTH_RETURN_IF_ERROR(sampler.Sample(logits.subspan(at, kVocab)).status());
    }
    best = std::min(best, static_cast<double>(clock.NowNs() - begin_ns) * 1e-9);
  }
  return best;
}

absl::Status Run() {
  SteadyClock clock;
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(list.gpus[0].id));
  const GpuId gpu = stream.view().gpu();
  std::printf("rows count   card us | replaces: copy us, sampler us\n");
  for (const uint32_t rows : {1u, 4u, 8u}) {
    const uint64_t bytes = uint64_t{rows} * kVocab * sizeof(float);
    HEARTH_ASSIGN_OR_RETURN(PinnedBuffer host, PinnedBuffer::Create(gpu, bytes));
    auto* const values = reinterpret_cast<float*>(host.data().data());
    Prng prng(rows);
    for (size_t i = 0; i < size_t{rows} * kVocab; ++i) {
      double sum = -3;
      for (int j = 0; j < 6; ++j) sum += prng.Uniform();
      values[i] = static_cast<float>(4 * sum);
    }
    HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer logits, DeviceBuffer::Create(gpu, bytes));
    HEARTH_ASSIGN_OR_RETURN(
        const DeviceBuffer top,
        DeviceBuffer::Create(gpu, rows * (kTopLogitsMax * sizeof(TopLogit) + sizeof(uint32_t))));
    HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer workspace,
                            DeviceBuffer::Create(gpu, TopLogitsWorkspaceBytes(rows)));
    HEARTH_RETURN_IF_ERROR(FillBytes(workspace, std::byte{0}, stream.view()));
    HEARTH_RETURN_IF_ERROR(CopyToDevice(host.data(), logits, 0, stream.view()));
    for (const uint32_t count : {1u, 50u, 256u}) {
      const TopLogitsArgs args = {
          .logits = reinterpret_cast<const float*>(logits.data()),
          .rows = rows,
          .vocab_count = kVocab,
          .count = count,
          .top = reinterpret_cast<TopLogit*>(top.data()),
          .exact = reinterpret_cast<uint32_t*>(top.data() +
                                               uint64_t{rows} * kTopLogitsMax * sizeof(TopLogit)),
          .workspace = workspace.data()};
      HEARTH_ASSIGN_OR_RETURN(const UniqueGraph graph,
                              UniqueGraph::Capture(stream.view(), [&](CudaStreamView on) {
                                for (uint32_t i = 0; i < kLaunches; ++i) {
                                  HEARTH_RETURN_IF_ERROR(LaunchTopLogits(args, on));
                                }
                                return absl::OkStatus();
                              }));
      HEARTH_ASSIGN_OR_RETURN(const double card, CardSeconds(stream, kLaunches, [&] {
                                return graph.Launch(stream.view());
                              }));
      HEARTH_ASSIGN_OR_RETURN(const double copy, CardSeconds(stream, 1, [&] {
                                return CopyToHost(logits, 0, host.data(), stream.view());
                              }));
      HEARTH_ASSIGN_OR_RETURN(const double sampler,
                              SamplerSeconds({values, size_t{rows} * kVocab}, count, clock));
      std::printf("%4u %5u %9.2f | %17.1f %11.1f\n", rows, count, card * 1e6, copy * 1e6,
                  sampler * 1e6);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main() {
  const absl::Status status = hearth::Run();
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
