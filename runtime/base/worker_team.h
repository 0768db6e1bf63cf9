// A fixed team of threads that run one function at a time over an index range: fork-join with two
// synchronisation points. Workers spin for a bounded time after a job, then park, so that an idle
// team costs nothing. Owned by one thread, which takes part in each job as worker 0.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace hearth {

class WorkerTeam {
 public:
  // Receives the caller's context, its worker index in [0, worker_count()), and its range.
  using RangeFn = void (*)(void* context, uint32_t worker, uint32_t begin, uint32_t end);

  // `worker_count` >= 1 includes the calling thread.
  explicit WorkerTeam(uint32_t worker_count);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  uint32_t worker_count() const { return worker_count_; }

  // Splits [0, count) into one contiguous range per worker, in multiples of `grain`, and returns
  // when all have run. Which worker gets which range is a pure function of (count, grain,
  // worker_count). Not reentrant.
  template <class Body>  // void(uint32_t worker, uint32_t begin, uint32_t end)
  void ForRanges(uint32_t count, uint32_t grain, Body&& body) {
    Run(
        count, grain,
        [](void* context, uint32_t worker, uint32_t begin, uint32_t end) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(worker, begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // As ForRanges, one index at a time, handed out as workers become free: for uneven work.
  template <class Body>  // void(uint32_t worker, uint32_t index)
  void ForEach(uint32_t count, Body&& body) {
    std::atomic<uint32_t> next{0};
    ForRanges(worker_count_, 1, [&](uint32_t worker, uint32_t, uint32_t) {
      for (uint32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(worker, i);
    });
  }

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> claimed_epoch{0};  // the last job whose share of this worker was taken
  };

  void Run(uint32_t count, uint32_t grain, RangeFn fn, void* context);
  bool Claim(uint32_t worker, uint64_t epoch);
  void RunShare(uint32_t worker) const;
  void WorkerMain(uint32_t worker);

  struct Job {
    RangeFn fn = nullptr;
    void* context = nullptr;
    uint32_t count = 0;
    uint32_t grain = 1;
  };

  const uint32_t worker_count_;
  Job job_;  // written before epoch_ is raised, read after it is seen

  // Ordering: Run() writes job_, then raises epoch_ (release). A thread that sees the new epoch_
  // (acquire) may claim a share of it, from epoch - 1 to epoch, and only then reads job_; it lowers
  // pending_ (release) when the share has run. Run() returns once it reads pending_ == 0 (acquire),
  // so job_ is not written again while anyone reads it, and every share has been claimed once: a
  // worker that wakes up late fails to claim.
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<uint32_t> pending_{0};
  alignas(64) std::atomic<uint32_t> parked_{0};
  std::mutex park_mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::vector<Share> shares_;
  std::vector<std::thread> threads_;
};

}  // namespace hearth
