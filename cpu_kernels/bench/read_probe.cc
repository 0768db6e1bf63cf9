#include "cpu_kernels/bench/read_probe.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint64_t kWalkGrainBytes = 8192;               // a multiple of what every ReadOrder needs
constexpr uint64_t kSampleBytesMax = uint64_t{1} << 30;  // of one worker
constexpr int kTriesPerOrder = 3;

}  // namespace

ReadProbe::ReadProbe(WorkerTeam& team, Clock& clock, Isa isa, std::span<const std::byte> memory,
                     uint64_t loop_bytes)
    : team_(&team), clock_(&clock), isa_(isa), memory_(memory), loop_bytes_(loop_bytes) {}

ReadProbe ReadProbe::OfWalk(WorkerTeam& team, Clock& clock, Isa isa,
                            std::span<const std::byte> memory) {
  HEARTH_CHECK(memory.size() >= kWalkGrainBytes * team.worker_count());
  return ReadProbe(team, clock, isa, memory, 0);
}

ReadProbe ReadProbe::OfLoop(WorkerTeam& team, Clock& clock, Isa isa,
                            std::span<const std::byte> memory, uint64_t bytes_each) {
  const uint64_t whole = std::max<uint64_t>(
      (bytes_each + kReadGrainBytes - 1) / kReadGrainBytes * kReadGrainBytes, kReadGrainBytes);
  const uint64_t most = memory.size() / team.worker_count() / kReadGrainBytes * kReadGrainBytes;
  HEARTH_CHECK(most > 0);
  return ReadProbe(team, clock, isa, memory, std::min(whole, most));
}

// `amount` rounds of a loop, or grains of a walk, for each worker.
void ReadProbe::Read(ReadOrder order, uint64_t amount) {
  std::atomic<uint64_t> sum{0};
  const uint32_t workers = team_->worker_count();
  const uint64_t share_bytes = amount * kWalkGrainBytes;
  if (loop_bytes_ == 0 && cursor_ + share_bytes * workers > memory_.size()) cursor_ = 0;
  team_->ForRanges(workers, 1, [&](uint32_t worker, uint32_t, uint32_t) {
    uint64_t part = 0;
    if (loop_bytes_ == 0) {
      part = ReadLines(isa_, order, memory_.data() + cursor_ + worker * share_bytes, share_bytes);
    } else {
      const std::byte* const own = memory_.data() + worker * loop_bytes_;
      for (uint64_t i = 0; i < amount; ++i) part += ReadLines(isa_, order, own, loop_bytes_);
    }
    sum.fetch_add(part, std::memory_order_relaxed);
  });
  if (loop_bytes_ == 0) cursor_ += share_bytes * workers;
  sink_ ^= sum.load(std::memory_order_relaxed);
}

double ReadProbe::Rate(ReadOrder order, uint64_t amount) {
  const int64_t start_ns = clock_->NowNs();
  Read(order, amount);
  const int64_t elapsed_ns = std::max<int64_t>(clock_->NowNs() - start_ns, 1);
  const uint64_t bytes = amount * (loop_bytes_ == 0 ? kWalkGrainBytes : loop_bytes_);
  return static_cast<double>(bytes * team_->worker_count()) * 1e9 / static_cast<double>(elapsed_ns);
}

void ReadProbe::Calibrate(int64_t sample_ns) {
  const uint64_t each = loop_bytes_ == 0 ? kWalkGrainBytes : loop_bytes_;
  const uint64_t most = loop_bytes_ == 0 ? memory_.size() / kWalkGrainBytes / team_->worker_count()
                                         : std::max<uint64_t>(kSampleBytesMax / loop_bytes_, 1);
  amount_ = 1;
  for (int64_t elapsed_ns = 0; elapsed_ns < sample_ns / 4 && amount_ < most;) {
    amount_ = std::min(amount_ * 2, most);
    const double rate = Rate(order_, amount_);
    elapsed_ns = static_cast<int64_t>(static_cast<double>(amount_ * each * team_->worker_count()) *
                                      1e9 / rate);
  }
  double best = 0;
  ReadOrder best_order = order_;
  for (int i = 0; i < kTriesPerOrder; ++i) {
    for (const ReadOrder order : kReadOrders) {
      const double rate = Rate(order, amount_);
      if (rate > best) best_order = order;
      best = std::max(best, rate);
    }
  }
  order_ = best_order;
  const double wanted = best * static_cast<double>(sample_ns) * 1e-9 /
                        static_cast<double>(each * team_->worker_count());
  amount_ = std::clamp(static_cast<uint64_t>(wanted), uint64_t{1}, most);
}

double ReadProbe::Sample() {
  Read(order_, 1);  // wakes the workers
  return Rate(order_, amount_);
}

}  // namespace hearth
