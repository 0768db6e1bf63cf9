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

void WorkerTeam::Run(uint32_t count, uint32_t grain, RangeFn fn, void* context) {
  if (count == 0) return;
  if (worker_count_ == 1) {
    fn(context, 0, 0, count);
    return;
  }
  grain = std::max(grain, 1u);
  job_ = {.fn = fn,
          .context = context,
          .count = count,
          .grain = grain,
          .worker_is_share = (uint64_t{count} + grain - 1) / grain <= worker_count_};
  pending_.store(worker_count_ * kPiecesPerShare, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
  epoch_.notify_one();  // asks the kernel only when a worker is parked
  const uint32_t ran = RunPieces(0, epoch);
  if (pending_.fetch_sub(ran, std::memory_order_acq_rel) == ran) return;
  for (SpinWait wait; pending_.load(std::memory_order_acquire) != 0;) wait.Pause();
}

bool WorkerTeam::TakePiece(uint32_t share, uint32_t epoch, uint32_t* piece) {
  std::atomic<uint64_t>& taken = shares_[share].taken;
  uint64_t seen = taken.load(std::memory_order_relaxed);
  do {
    const auto seen_epoch = static_cast<uint32_t>(seen >> 32);
    if (static_cast<int32_t>(seen_epoch - epoch) > 0) return false;
    *piece = seen_epoch == epoch ? static_cast<uint32_t>(seen) : 0;
    if (*piece == kPiecesPerShare) return false;
  } while (!taken.compare_exchange_weak(seen, uint64_t{epoch} << 32 | (*piece + 1),
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
  return true;
}

void WorkerTeam::RunPiece(uint32_t worker, uint32_t share, uint32_t piece) const {
  const uint64_t grains = (uint64_t{job_.count} + job_.grain - 1) / job_.grain;
  const uint64_t first = grains * share / worker_count_;
  const uint64_t share_grains = grains * (share + 1) / worker_count_ - first;
  const auto edge = [&](uint64_t p) {
    const uint64_t grain = first + share_grains * p / kPiecesPerShare;
    return static_cast<uint32_t>(std::min<uint64_t>(job_.count, grain * job_.grain));
  };
  const uint32_t begin = edge(piece);
  const uint32_t end = edge(piece + 1);
  if (begin < end) job_.fn(job_.context, job_.worker_is_share ? share : worker, begin, end);
}

uint32_t WorkerTeam::RunPieces(uint32_t worker, uint32_t epoch) {
  uint32_t ran = 0;
  for (uint32_t i = 0; i < worker_count_; ++i) {
    const uint32_t share = (worker + i) % worker_count_;
    for (uint32_t piece; TakePiece(share, epoch, &piece); ++ran) RunPiece(worker, share, piece);
  }
  return ran;
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
    const uint32_t ran = RunPieces(worker, epoch);
    if (ran != 0) pending_.fetch_sub(ran, std::memory_order_release);
  }
}

}  // namespace hearth
