// Exchanges time stamps with the host; gpu_kernels/ops/exchange/card_clock.h.
#include <atomic>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/exchange/card_clock.h"
#include "gpu_kernels/ops/exchange/system_memory.cuh"
#include "runtime/base/spin_wait.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kRounds = 64;
constexpr uint64_t kWaitNsMax = 1'000'000'000;

// words[0]: round that the host asks for; words[16]: the stamp of the round; words[32]: the round
// whose stamp that is. Each on lines of its own.
constexpr uint32_t kAsked = 0, kStamp = 16, kAnswered = 32, kWords = 48;

__global__ void ClockKernel(uint64_t* words) {
  const uint64_t start_ns = GlobalTimerNs();
  for (uint64_t round = 1; round <= kRounds; ++round) {
    while (LoadRelaxed(words + kAsked) != round) {
      if (GlobalTimerNs() - start_ns > kWaitNsMax) return;
    }
    StoreRelaxed(words + kStamp, GlobalTimerNs());
    StoreRelease(words + kAnswered, round);
  }
}

std::atomic_ref<uint64_t> At(std::span<std::byte> memory, uint32_t word) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(memory.data())[word]);
}

}  // namespace

absl::StatusOr<CardClock> MeasureCardClock(CudaStreamView stream, Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(const PinnedBuffer words,
                          PinnedBuffer::Create(stream.gpu(), kWords * sizeof(uint64_t)));
  ClockKernel<<<1, 1, 0, stream.get()>>>(reinterpret_cast<uint64_t*>(words.device_data()));
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "clock of the GPU"));
  CardClock card;
  const int64_t deadline_ns = clock.NowNs() + static_cast<int64_t>(kWaitNsMax);
  bool in_time = true;
  for (uint64_t round = 1; round <= kRounds && in_time; ++round) {
    ClockSample sample;
    sample.host_before_ns = clock.NowNs();
    At(words.data(), kAsked).store(round, std::memory_order_release);
    SpinWait wait;
    while (At(words.data(), kAnswered).load(std::memory_order_acquire) != round && in_time) {
      wait.Pause();
      in_time = clock.NowNs() < deadline_ns;
    }
    sample.host_after_ns = clock.NowNs();
    sample.card_ns = At(words.data(), kStamp).load(std::memory_order_relaxed);
    if (in_time) card.Add(sample);
  }
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream.get()), "clock of the GPU"));  // it reads `words`
  if (!in_time) return absl::DeadlineExceededError("clock of the GPU: no answer within a second");
  return card;
}

}  // namespace hearth
