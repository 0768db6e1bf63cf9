#include "runtime/base/worker_team.h"

#include <algorithm>

#include "runtime/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hearth {
namespace {

// A decode step asks for a job every few microseconds. Waiting is 2,000 pauses (40-100 us on
// current processors), which bridges the gap between two jobs; then 500 offers of the processor to
// whoever else wants it (about 0.3 ms when nobody does), which bridges the gap between two windows
// and lets a worker without a core of its own run; after that a worker parks.
constexpr uint32_t kPauses = 2000;
constexpr uint32_t kYields = 500;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// The `waits`-th wait in a row for something that another thread is about to do.
void Wait(uint32_t waits) {
  if (waits < kPauses) {
    Pause();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace

WorkerTeam::WorkerTeam(uint32_t worker_count) : worker_count_(worker_count), shares_(worker_count) {
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
  const uint64_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(park_mutex_);  // pairs with the predicate check of a worker about to park
    wake_.notify_all();
  }
  RunShare(0);
  for (uint32_t w = 1; w < worker_count_; ++w) {
    if (!Claim(w, epoch)) continue;
    RunShare(w);
    pending_.fetch_sub(1, std::memory_order_relaxed);
  }
  for (uint32_t waits = 0; pending_.load(std::memory_order_acquire) != 0; ++waits) Wait(waits);
}

bool WorkerTeam::Claim(uint32_t worker, uint64_t epoch) {
  uint64_t before = epoch - 1;
  return shares_[worker].claimed_epoch.compare_exchange_strong(before, epoch,
                                                               std::memory_order_acq_rel);
}

void WorkerTeam::WorkerMain(uint32_t worker) {
  uint64_t seen = 0;
  for (;;) {
    uint64_t epoch = epoch_.load(std::memory_order_acquire);
    for (uint32_t waits = 0; epoch == seen && waits < kPauses + kYields; ++waits) {
      Wait(waits);
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (epoch == seen) {
      std::unique_lock lock(park_mutex_);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] {
        epoch = epoch_.load(std::memory_order_seq_cst);
        return epoch != seen;
      });
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = epoch;
    if (stopping_.load(std::memory_order_acquire)) return;
    if (!Claim(worker, epoch)) continue;
    RunShare(worker);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace hearth
