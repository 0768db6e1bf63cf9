// Uploads on their way into a card's slots, in order: a few under way at a time, the others
// waiting. Bytes that the engine cannot read in place go through pieces of staging memory. A thread
// of its own watches them end and tells the sinks. A copy that does not end within a bound breaks
// the queue: that upload, all behind it and all later ones are errors, and nobody hangs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/clock.h"
#include "runtime/experts/copy_engine.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

struct UploadQueueOptions {
  uint32_t in_flight_max = 8;  // uploads begun
  uint32_t waiting_max = 64;   // Upload() holds its caller up when so many wait
  int64_t timeout_ns = 10'000'000'000;
  int64_t poll_ns = 5'000;  // between two looks at the engine while something is under way
  // Unless empty: memory for a slot that the engine reaches; every slot is read back into it and
  // compared. For finding faults of a card.
  std::span<std::byte> verify_into = {};
};

struct UploadStats {
  uint64_t upload_count = 0;  // that have ended well
  uint64_t bytes = 0;         // of them
  uint64_t staged_count = 0;  // of them, through staging memory
};

class UploadQueue {
 public:
  static uint32_t MarksNeeded(const UploadQueueOptions& options, uint32_t piece_count) {
    return options.in_flight_max + piece_count + 2;
  }
  // Both outlive the queue. The engine has the marks that are needed.
  UploadQueue(CopyEngine& engine, Clock& clock, const UploadQueueOptions& options);
  ~UploadQueue();  // every upload has been answered

  // As SlotDevice::Upload.
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink, uint32_t index);
  // Copies the front of a slot into memory that the engine reaches in place, and waits for that.
  absl::Status Read(SlotRef slot, std::span<std::byte> into);

  UploadStats stats() const;
  absl::Status broken() const;  // why nothing is uploaded any more; OK while it is

 private:
  struct Item {
    SlotRef slot;
    std::span<const std::byte> from;
    UploadSink* sink = nullptr;
    uint32_t index = 0;
    bool staged = false;
  };

  Item& At(uint64_t sequence) { return items_[sequence % items_.size()]; }
  uint32_t UploadMark(uint64_t sequence) const {
    return static_cast<uint32_t>(sequence % options_.in_flight_max);
  }
  uint32_t PieceMark(uint32_t piece) const { return options_.in_flight_max + piece; }
  uint32_t ReadMark() const { return PieceMark(piece_count_); }
  uint32_t VerifyMark() const { return PieceMark(piece_count_) + 1; }

  // With the engine's mutex held, but for the first and the last.
  bool IsInPlace(std::span<const std::byte> from) const;
  absl::Status CopyInPlace(const Item& item);
  absl::Status CopyStaged(std::unique_lock<std::mutex>& engine_lock, const Item& item);
  // Lets go of the lock while it waits.
  absl::Status Await(std::unique_lock<std::mutex>& engine_lock, uint32_t mark, SlotRef slot);
  absl::Status Late(SlotRef slot) const;

  // The watcher's. Those that are given the lock are called with the mutex held and may let go of
  // it for a while; without it while the engine is asked.
  absl::Status Begin(std::unique_lock<std::mutex>& lock);  // of the first that waits
  absl::StatusOr<bool> OldestHasEnded(std::unique_lock<std::mutex>& lock);
  absl::Status Verify(const Item& item);
  void AnswerOldest(std::unique_lock<std::mutex>& lock, const absl::Status& status);
  void Break(std::unique_lock<std::mutex>& lock, const absl::Status& why);
  void Step(std::unique_lock<std::mutex>& lock);
  void WatchMain();

  CopyEngine& engine_;
  Clock& clock_;
  const UploadQueueOptions options_;
  const uint32_t piece_count_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Item> items_;  // a ring: in flight, then waiting
  uint64_t first_ = 0;       // sequence number of the oldest
  uint32_t in_flight_ = 0;   // of them, begun
  uint32_t waiting_ = 0;
  int64_t oldest_since_ns_ = 0;  // since when the oldest in flight has been that
  UploadStats stats_;
  absl::Status broken_;
  bool stopping_ = false;
  std::condition_variable engine_pause_;  // nobody wakes it: between two looks at the engine
  std::mutex engine_mutex_;  // guards the engine's copies and marks, and what belongs to them:
  uint32_t next_piece_ = 0;
  std::vector<uint8_t> piece_used_;  // its mark has been set

  std::thread watcher_;
};

}  // namespace hearth
