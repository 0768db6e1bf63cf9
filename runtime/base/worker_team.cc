#include "runtime/base/worker_team.h"

#include <algorithm>

#include "runtime/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hearth {
namespace {

// A decode step asks for a job every few microseconds; 20,000 pauses are about 0.3-1 ms on current
// processors, long enough to stay awake between layers and short enough to park between requests.
constexpr uint32_t kSpinsBeforePark = 20000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

WorkerTeam::WorkerTeam(uint32_t worker_count) : worker_count_(worker_count) {
  HEARTH_CHECK(worker_count >= 1);
  threads_.reserve(worker_count - 1);
  for (uint32_t w = 1; w < worker_count; ++w) threads_.emplace_back([this, w] { WorkerMain(w); });
}

WorkerTeam::~WorkerTeam() {
  {
    std::lock_guard lock(park_mutex_);
    stopping_.store(true, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
  }
  wake_.notify_all();
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
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(park_mutex_);  // pairs with the predicate check of a worker about to park
    wake_.notify_all();
  }
  RunShare(0);
  for (uint32_t spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpinsBeforePark) {
      Pause();
    } else {
      std::this_thread::yield();  // more workers than free cores: let them run
    }
  }
}

void WorkerTeam::WorkerMain(uint32_t worker) {
  uint64_t seen = 0;
  for (;;) {
    uint32_t spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen && spins < kSpinsBeforePark) {
      Pause();
      ++spins;
    }
    if (epoch_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(park_mutex_);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
    ++seen;
    if (stopping_.load(std::memory_order_acquire)) return;
    RunShare(worker);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace hearth
