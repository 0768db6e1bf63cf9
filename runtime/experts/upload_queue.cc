#include "runtime/experts/upload_queue.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// How late the kernel may wake the watcher: by itself it takes fifty microseconds, as long as a
// copy.
constexpr unsigned long kTimerSlackNs = 1000;

std::string NameOf(SlotRef slot) {
  return absl::StrCat("slot ", slot.slot.value, " of pool ", slot.pool);
}

}  // namespace

UploadQueue::UploadQueue(CopyEngine& engine, Clock& clock, const UploadQueueOptions& options)
    : engine_(engine),
      clock_(clock),
      options_(options),
      piece_count_(
          engine.staging_piece_bytes() == 0
              ? 0
              : static_cast<uint32_t>(engine.staging().size() / engine.staging_piece_bytes())),
      items_(options.in_flight_max + std::max(options.waiting_max, 1u)),
      piece_used_(piece_count_) {
  HEARTH_CHECK(options.in_flight_max > 0);
  HEARTH_CHECK(engine.mark_count() >= MarksNeeded(options, piece_count_));
  watcher_ = std::thread([this] { WatchMain(); });
}

UploadQueue::~UploadQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

UploadStats UploadQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

absl::Status UploadQueue::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void UploadQueue::Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
                         uint32_t index) {
  const bool staged = !IsInPlace(from);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ + waiting_ < items_.size() || !broken_.ok(); });
  if (!broken_.ok()) {
    const absl::Status why = broken_;
    lock.unlock();
    return sink.OnUploaded(index, why);
  }
  const bool was_idle = in_flight_ + waiting_ == 0;
  At(first_ + in_flight_ + waiting_) = {
      .slot = slot, .from = from, .sink = &sink, .index = index, .staged = staged};
  ++waiting_;
  lock.unlock();
  if (was_idle) changed_.notify_all();  // otherwise the watcher looks soon
}

bool UploadQueue::IsInPlace(std::span<const std::byte> from) const {
  while (!from.empty()) {
    const uint64_t bytes = engine_.ReadsInPlace(from);
    if (bytes == 0) return false;
    from = from.subspan(std::min<uint64_t>(bytes, from.size()));
  }
  return true;
}

// What the engine is asked for may take a driver tens of microseconds: only the watcher does, and
// without the mutex, so that nobody who hands over an upload waits for it.
absl::Status UploadQueue::CopyInPlace(const Item& item) {
  for (uint64_t done = 0; done < item.from.size();) {
    const std::span<const std::byte> rest = item.from.subspan(done);
    const uint64_t bytes = std::min<uint64_t>(engine_.ReadsInPlace(rest), rest.size());
    HEARTH_CHECK(bytes > 0);
    HEARTH_RETURN_IF_ERROR(engine_.Copy(item.slot, done, rest.first(bytes)));
    done += bytes;
  }
  return absl::OkStatus();
}

absl::Status UploadQueue::CopyStaged(std::unique_lock<std::mutex>& engine_lock, const Item& item) {
  if (piece_count_ == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(item.slot),
                     ": its bytes are not in pinned memory and there is no "
                     "memory to bring them through"));
  }
  const uint64_t piece_bytes = engine_.staging_piece_bytes();
  for (uint64_t done = 0; done < item.from.size();) {
    const uint32_t piece = next_piece_++ % piece_count_;
    if (piece_used_[piece] != 0) {
      HEARTH_RETURN_IF_ERROR(Await(engine_lock, PieceMark(piece), item.slot));
    }
    const uint64_t bytes = std::min<uint64_t>(piece_bytes, item.from.size() - done);
    const std::span<std::byte> staged = engine_.staging().subspan(piece * piece_bytes, bytes);
    std::memcpy(staged.data(), item.from.data() + done, bytes);
    HEARTH_RETURN_IF_ERROR(engine_.Copy(item.slot, done, staged));
    HEARTH_RETURN_IF_ERROR(engine_.Mark(PieceMark(piece)));
    piece_used_[piece] = 1;
    done += bytes;
  }
  return absl::OkStatus();
}

// It counts as waiting until it has begun.
absl::Status UploadQueue::Begin(std::unique_lock<std::mutex>& lock) {
  const uint64_t sequence = first_ + in_flight_;
  const Item item = At(sequence);
  lock.unlock();
  absl::Status status;
  {
    std::unique_lock engine_lock(engine_mutex_);
    status = item.staged ? CopyStaged(engine_lock, item) : CopyInPlace(item);
    if (status.ok()) status = engine_.Mark(UploadMark(sequence));
  }
  lock.lock();
  HEARTH_RETURN_IF_ERROR(status);
  if (in_flight_ == 0) oldest_since_ns_ = clock_.NowNs();
  ++in_flight_;
  --waiting_;
  return absl::OkStatus();
}

absl::Status UploadQueue::Late(SlotRef slot) const {
  return absl::DeadlineExceededError(
      absl::StrCat(NameOf(slot), ": a copy has not ended within ", options_.timeout_ns / 1'000'000,
                   " ms; the card does not answer: restart, and see the kernel's log for it"));
}

absl::Status UploadQueue::Await(std::unique_lock<std::mutex>& engine_lock, uint32_t mark,
                                SlotRef slot) {
  const int64_t begin_ns = clock_.NowNs();
  for (;;) {
    HEARTH_ASSIGN_OR_RETURN(const bool passed, engine_.HasPassed(mark));
    if (passed) return absl::OkStatus();
    if (clock_.NowNs() - begin_ns > options_.timeout_ns) return Late(slot);
    (void)engine_pause_.wait_for(engine_lock, std::chrono::nanoseconds(options_.poll_ns));
  }
}

absl::Status UploadQueue::Read(SlotRef slot, std::span<std::byte> into) {
  HEARTH_RETURN_IF_ERROR(broken());
  std::unique_lock engine_lock(engine_mutex_);
  HEARTH_RETURN_IF_ERROR(engine_.CopyBack(slot, into, ReadMark()));
  return Await(engine_lock, ReadMark(), slot);
}

absl::Status UploadQueue::Verify(const Item& item) {
  if (options_.verify_into.empty()) return absl::OkStatus();
  std::unique_lock engine_lock(engine_mutex_);
  const std::span<std::byte> read = options_.verify_into.first(item.from.size());
  HEARTH_RETURN_IF_ERROR(engine_.CopyBack(item.slot, read, VerifyMark()));
  HEARTH_RETURN_IF_ERROR(Await(engine_lock, VerifyMark(), item.slot));
  const auto [at, expected] = std::ranges::mismatch(read, item.from);
  if (at == read.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(NameOf(item.slot), ": byte ", at - read.begin(), " of ",
                                          read.size(), " is ", std::to_integer<int>(*at),
                                          ", copied was ", std::to_integer<int>(*expected)));
}

// Whether the oldest in flight has ended, well or not.
absl::StatusOr<bool> UploadQueue::OldestHasEnded(std::unique_lock<std::mutex>& lock) {
  const uint32_t mark = UploadMark(first_);
  lock.unlock();
  absl::StatusOr<bool> ended = false;
  {
    const std::lock_guard engine_lock(engine_mutex_);
    ended = engine_.HasPassed(mark);
  }
  lock.lock();
  if (ended.ok() && !*ended && clock_.NowNs() - oldest_since_ns_ > options_.timeout_ns) {
    return Late(At(first_).slot);
  }
  return ended;
}

// The slot's place in the queue is free before the sink hears of it: whoever waits for the sink may
// go on at once.
void UploadQueue::AnswerOldest(std::unique_lock<std::mutex>& lock, const absl::Status& status) {
  const Item item = At(first_);
  ++first_;
  --(in_flight_ > 0 ? in_flight_ : waiting_);
  oldest_since_ns_ = clock_.NowNs();
  if (status.ok()) {
    ++stats_.upload_count;
    stats_.bytes += item.from.size();
    stats_.staged_count += item.staged ? 1 : 0;
  }
  changed_.notify_all();
  lock.unlock();
  item.sink->OnUploaded(item.index, status);
  lock.lock();
}

// What is in flight may still be written to its slots, whenever the card comes back: nothing is
// uploaded to any slot after this.
void UploadQueue::Break(std::unique_lock<std::mutex>& lock, const absl::Status& why) {
  if (broken_.ok()) broken_ = why;
  while (in_flight_ + waiting_ > 0) AnswerOldest(lock, broken_);
}

void UploadQueue::Step(std::unique_lock<std::mutex>& lock) {
  if (waiting_ > 0 && in_flight_ < options_.in_flight_max) {
    if (absl::Status status = Begin(lock); !status.ok()) return Break(lock, status);
  }
  if (in_flight_ == 0) return;
  const absl::StatusOr<bool> ended = OldestHasEnded(lock);
  if (!ended.ok()) return Break(lock, ended.status());
  if (*ended) {
    const Item item = At(first_);
    lock.unlock();
    const absl::Status status = Verify(item);
    lock.lock();
    return AnswerOldest(lock, status);
  }
  if (waiting_ > 0 && in_flight_ < options_.in_flight_max) return;
  changed_.wait_for(lock, std::chrono::nanoseconds(options_.poll_ns));
}

void UploadQueue::WatchMain() {
  (void)prctl(PR_SET_TIMERSLACK, kTimerSlackNs);  // refused: it wakes later
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return in_flight_ + waiting_ > 0 || stopping_; });
    if (in_flight_ + waiting_ == 0) return;
    Step(lock);
  }
}

}  // namespace hearth
