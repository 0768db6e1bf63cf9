#include "cache/io/pread_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "cache/io/finished_reads.h"
#include "cache/io/read_progress.h"
#include "cache/io/wait_signal.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

class PreadReader final : public Reader {
 public:
  PreadReader(std::shared_ptr<DirectFile> file, PreadReaderOptions options)
      : file_(std::move(file)),
        attempt_(std::move(options.attempt)),
        align_bytes_(options.align_bytes),
        attempt_bytes_max_(options.attempt_bytes_max),
        clock_(options.clock),
        waiting_(options.in_flight_max),
        finished_(options.in_flight_max) {
    if (!attempt_) {
      attempt_ = [fd = file_->fd()](uint64_t offset_bytes, std::span<std::byte> into) {
        const ssize_t n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset_bytes));
        return n < 0 ? -int64_t{errno} : int64_t{n};
      };
    }
    traits_.kind = "pread";
    traits_.in_flight_max = options.in_flight_max;
    traits_.notes = std::move(options.notes);
    DescribeDirect();
    const uint32_t thread_count = std::min(options.thread_count, options.in_flight_max);
    threads_.reserve(thread_count);
    for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();  // each ends the read that it is at
  }

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override {
    const size_t n = std::min<size_t>(requests.size(), traits_.in_flight_max - in_flight_);
    if (n == 0) return n;
    const int64_t now_ns = clock_.NowNs();
    {
      const std::lock_guard lock(mutex_);
      for (const ReadRequest& request : requests.first(n)) {
        waiting_[(waiting_first_ + waiting_count_++) % waiting_.size()] = {request, now_ns};
      }
    }
    in_flight_ += static_cast<uint32_t>(n);
    if (n == 1) {
      work_.notify_one();
    } else {
      work_.notify_all();
    }
    return n;
  }

  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override {
    HEARTH_CHECK(!out.empty());
    const auto timeout = std::chrono::nanoseconds(std::clamp<int64_t>(timeout_ns, 0, kSleepMaxNs));
    size_t n = 0;
    {
      std::unique_lock lock(mutex_);
      done_.wait_for(lock, timeout, [this] { return finished_.count() > 0 || woken_; });
      woken_ = false;
      n = finished_.PopInto(out);
    }
    in_flight_ -= static_cast<uint32_t>(n);
    if (traits_.direct && !file_->direct()) DescribeDirect();
    return n;
  }

  void Wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    done_.notify_one();
  }

  uint32_t in_flight() const override { return in_flight_; }
  const ReaderTraits& traits() const override { return traits_; }

 private:
  struct Waiting {
    ReadRequest request;
    int64_t submitted_ns = 0;
  };

  void DescribeDirect() {
    traits_.direct = file_->direct();
    traits_.align_bytes = traits_.direct ? align_bytes_ : 1;
    if (std::string note = file_->Note(); !note.empty()) traits_.notes.push_back(std::move(note));
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stopping_ || waiting_count_ > 0; });
      if (stopping_) return;
      const Waiting waiting = waiting_[waiting_first_];
      waiting_first_ = (waiting_first_ + 1) % waiting_.size();
      --waiting_count_;
      lock.unlock();
      absl::Status status = Read(waiting.request);
      const int64_t latency_ns = clock_.NowNs() - waiting.submitted_ns;
      lock.lock();
      finished_.Push(
          {.tag = waiting.request.tag, .status = std::move(status), .latency_ns = latency_ns});
      done_.notify_one();
    }
  }

  absl::Status Read(const ReadRequest& request) {
    ReadProgress progress(request, {.file_bytes = file_->bytes(),
                                    .align_bytes = align_bytes_,
                                    .direct = file_->direct(),
                                    .attempt_bytes_max = attempt_bytes_max_});
    ReadProgress::Next next = progress.Begin();
    while (next != ReadProgress::Next::kDone) {
      if (next == ReadProgress::Next::kFailed) return progress.Error(file_->path());
      if (next == ReadProgress::Next::kWithoutDirect) {
        file_->StopDirect();
        progress.StopDirect();
      }
      next = progress.Advance(attempt_(progress.next_offset_bytes(), progress.next_into()));
    }
    return absl::OkStatus();
  }

  std::shared_ptr<DirectFile> file_;
  ReadAttempt attempt_;
  uint64_t align_bytes_;
  uint64_t attempt_bytes_max_;
  Clock& clock_;  // asked from all threads
  ReaderTraits traits_;
  uint32_t in_flight_ = 0;  // the owner's count

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<Waiting> waiting_;  // a ring
  size_t waiting_first_ = 0;
  size_t waiting_count_ = 0;
  FinishedReads finished_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Reader> MakePreadReader(std::shared_ptr<DirectFile> file,
                                        PreadReaderOptions options) {
  return std::make_unique<PreadReader>(std::move(file), std::move(options));
}

}  // namespace hearth
