// A fixed team of threads that run one function at a time over an index range: fork-join with two
// synchronisation points. Workers wait for a bounded time (kParkAfterNs) after a job, then park, so
// that an idle team costs nothing. Owned by one thread, which takes part in each job as worker 0.
// Each worker has a share of the job, in a few pieces; who has run out takes pieces of the others.
// So a job waits for no worker that the system has not let run, and ends evenly on cores that are
// not equally fast.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace hearth {

class WorkerTeam {
 public:
  static constexpr uint32_t kPiecesPerShare = 4;

  // Receives the caller's context, a worker index in [0, worker_count()), and a piece.
  using RangeFn = void (*)(void* context, uint32_t worker, uint32_t begin, uint32_t end);

  // `worker_count` >= 1 includes the calling thread. `worker_nodes`: which memory node each worker
  // is close to, counted from 0, each node with a worker; empty when there is but one node.
  explicit WorkerTeam(uint32_t worker_count, std::vector<uint32_t> worker_nodes = {});
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  uint32_t worker_count() const { return worker_count_; }
  uint32_t node_of(uint32_t worker) const {
    return worker_nodes_.empty() ? 0 : worker_nodes_[worker];
  }
  uint32_t node_count() const { return node_count_; }

  // The thread of worker 1 and up, for pinning.
  std::thread::native_handle_type thread(uint32_t worker) {
    return threads_[worker - 1].native_handle();
  }

  // Splits [0, count) into contiguous pieces, in multiples of `grain`, and returns when all have
  // run: one call for each piece. The pieces are a pure function of (count, grain, worker_count),
  // at most kPiecesPerShare for each worker. Who runs them is not, but no two calls at the same
  // time have the same worker index, and of exactly worker_count grains the i-th is run as worker
  // i. Not reentrant.
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
    std::atomic<uint64_t> taken{0};  // epoch of a job << 32 | how many pieces of it were taken
  };

  void Run(uint32_t count, uint32_t grain, RangeFn fn, void* context);
  uint32_t AwaitJob(uint32_t seen);
  bool TakePiece(uint32_t share, uint32_t epoch, uint32_t* piece);
  void RunPiece(uint32_t worker, uint32_t share, uint32_t piece) const;
  uint32_t RunPieces(uint32_t worker, uint32_t epoch);
  void WorkerMain(uint32_t worker);

  struct Job {
    RangeFn fn = nullptr;
    void* context = nullptr;
    uint32_t count = 0;
    uint32_t grain = 1;
    bool worker_is_share = false;  // the worker index that is passed on
  };

  const uint32_t worker_count_;
  const std::vector<uint32_t> worker_nodes_;
  uint32_t node_count_ = 1;
  Job job_;  // written before epoch_ is raised, read after it is seen

  // Ordering: Run() writes job_, then raises epoch_ (release). A thread that sees the new epoch_
  // (acquire) may take pieces of it, and only then reads job_; it lowers pending_ (release) by the
  // pieces that it has run. Run() returns once pending_ is 0 (acquire), so job_ is not written
  // again while anyone reads it, and every piece has been taken once: a worker that comes late
  // finds that all pieces of its epoch are taken or that the share is at a later epoch. Epochs wrap
  // around; their difference is compared.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<uint32_t> pending_{0};
  std::atomic<bool> stopping_{false};
  std::vector<Share> shares_;
  std::vector<std::thread> threads_;
};

}  // namespace hearth
