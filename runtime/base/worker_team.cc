#include "runtime/base/worker_team.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/spin_wait.h"

namespace hearth {
namespace {

// A decode step asks for a job every few microseconds and, when a GPU computes between two layers,
// every few hundred; waking a parked thread costs up to 50 us. So a worker waits for 1 ms, of which
// all but the beginning is spent offering its processor to others, before it parks.
constexpr int64_t kParkAfterNs = 1'000'000;
constexpr uint32_t kWaitsPerClock = 32;  // steps of waiting between two looks at the clock
constexpr uint32_t kWakesEach = 2;       // parked workers that a woken one wakes

}  // namespace

WorkerTeam::WorkerTeam(uint32_t worker_count, std::vector<uint32_t> worker_nodes)
    : worker_count_(worker_count), worker_nodes_(std::move(worker_nodes)), shares_(worker_count) {
  HEARTH_CHECK(worker_count >= 1);
  HEARTH_CHECK(worker_nodes_.empty() || worker_nodes_.size() == worker_count);
  for (const uint32_t node : worker_nodes_) node_count_ = std::max(node_count_, node + 1);
  for (uint32_t node = 0; node < node_count_ && !worker_nodes_.empty(); ++node) {
    HEARTH_CHECK(std::count(worker_nodes_.begin(), worker_nodes_.end(), node) > 0);
  }
  threads_.reserve(worker_count - 1);
  for (uint32_t w = 1; w < worker_count; ++w) threads_.emplace_back([this, w] { WorkerMain(w); });
}

WorkerTeam::~WorkerTeam() {
  stopping_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  epoch_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void WorkerTeam::RunShare(uint32_t worker) const {
  const uint64_t grains = (uint64_t{job_.count} + job_.grain - 1) / job_.grain;
  const auto edge = [&](uint64_t w) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(job_.count, grains * w / worker_count_ * job_.grain));
  };
  const uint32_t begin = edge(worker);
  const uint32_t end = edge(worker + 1);
  if (begin < end) job_.fn(job_.context, worker, begin, end);
}

void WorkerTeam::Run(uint32_t count, uint32_t grain, RangeFn fn, void* context) {
  if (count == 0) return;
  job_ = {.fn = fn, .context = context, .count = count, .grain = std::max(grain, 1u)};
  if (worker_count_ == 1) {
    RunShare(0);
    return;
  }
  pending_.store(worker_count_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
  epoch_.notify_one();  // asks the kernel only when a worker is parked
  RunShare(0);
  for (uint32_t w = 1; w < worker_count_; ++w) {
    if (!Claim(w, epoch)) continue;
    RunShare(w);
    pending_.fetch_sub(1, std::memory_order_relaxed);
  }
  for (SpinWait wait; pending_.load(std::memory_order_acquire) != 0;) wait.Pause();
}

bool WorkerTeam::Claim(uint32_t worker, uint32_t epoch) {
  uint32_t before = epoch - 1;
  return shares_[worker].claimed_epoch.compare_exchange_strong(before, epoch,
                                                               std::memory_order_acq_rel);
}

uint32_t WorkerTeam::AwaitJob(uint32_t seen) {
  SteadyClock clock;
  const int64_t park_ns = clock.NowNs() + kParkAfterNs;
  SpinWait wait;
  do {
    for (uint32_t i = 0; i < kWaitsPerClock; ++i) {
      const uint32_t epoch = epoch_.load(std::memory_order_acquire);
      if (epoch != seen) return epoch;
      wait.Pause();
    }
  } while (clock.NowNs() < park_ns);
  epoch_.wait(seen, std::memory_order_acquire);
  // Waking a thread takes the waker several microseconds, so those that are awake share the effort.
  for (uint32_t i = 0; i < kWakesEach; ++i) epoch_.notify_one();
  return epoch_.load(std::memory_order_acquire);
}

void WorkerTeam::WorkerMain(uint32_t worker) {
  for (uint32_t epoch = 0;;) {
    epoch = AwaitJob(epoch);
    if (stopping_.load(std::memory_order_acquire)) return;
    if (!Claim(worker, epoch)) continue;
    RunShare(worker);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace hearth
