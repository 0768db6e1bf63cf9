// Uploads on their way to a copy engine that the test steers: order, bounds, staging, and what
// happens when a copy fails or never ends.
#include "runtime/experts/upload_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/allocation_count.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSlotBytes = 4096;
constexpr uint32_t kSlots = 8;

struct EngineOptions {
  uint32_t marks = 32;
  uint32_t pieces = 2;
  uint64_t piece_bytes = 1024;
  bool ends_at_once = true;
};

// Copies begin when they are asked for and write their bytes when they end: as the test lets them,
// or when somebody looks.
class FakeEngine final : public CopyEngine {
 public:
  explicit FakeEngine(const EngineOptions& options)
      : options_(options),
        slots_(kSlots * kSlotBytes),
        staging_(options.pieces * options.piece_bytes),
        marked_(options.marks) {
    copies_.reserve(1024);
  }
  // What one copy reads in place, beginning with this memory.
  void Pin(std::span<const std::byte> bytes) { pinned_.push_back(bytes); }
  std::span<const std::byte> slot(uint32_t i) const {
    return std::span(slots_).subspan(i * kSlotBytes, kSlotBytes);
  }
  void EndUpTo(uint64_t copy_count) {
    const std::lock_guard lock(mutex_);
    allowed_ = copy_count;
  }
  void EndAll() { EndUpTo(UINT64_MAX); }
  void FailCopies(bool fails) { copy_fails_ = fails; }
  void FailQueries(bool fails) { query_fails_ = fails; }
  void Damage(bool damages) { damages_ = damages; }
  uint64_t begun_count() const {
    const std::lock_guard lock(mutex_);
    return copies_.size();
  }

  uint64_t ReadsInPlace(std::span<const std::byte> from) const override {
    for (const auto& range : pinned_) {
      if (from.data() >= range.data() && from.data() < range.data() + range.size()) {
        return static_cast<uint64_t>(range.data() + range.size() - from.data());
      }
    }
    return 0;
  }
  std::span<std::byte> staging() const override { return staging_; }
  uint64_t staging_piece_bytes() const override { return options_.piece_bytes; }
  absl::Status Copy(SlotRef slot, uint64_t offset_bytes, std::span<const std::byte> from) override {
    if (copy_fails_) return absl::InternalError("engine: no copies today");
    const std::lock_guard lock(mutex_);
    copies_.push_back({slot.slot.value * kSlotBytes + offset_bytes, from});
    if (options_.ends_at_once) allowed_ = copies_.size();
    return absl::OkStatus();
  }
  absl::Status Mark(uint32_t mark) override {
    const std::lock_guard lock(mutex_);
    marked_[mark] = copies_.size();
    return absl::OkStatus();
  }
  absl::Status CopyBack(SlotRef slot, std::span<std::byte> into, uint32_t mark) override {
    const std::lock_guard lock(mutex_);
    std::copy_n(slots_.begin() + slot.slot.value * kSlotBytes, into.size(), into.begin());
    if (damages_) into.back() ^= std::byte{1};
    marked_[mark] = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<bool> HasPassed(uint32_t mark) const override {
    if (query_fails_) return absl::InternalError("engine: lost");
    const std::lock_guard lock(mutex_);
    for (; done_ < std::min<uint64_t>(allowed_, copies_.size()); ++done_) {
      const auto& [at, from] = copies_[done_];
      std::copy(from.begin(), from.end(), slots_.begin() + static_cast<ptrdiff_t>(at));
    }
    return marked_[mark] <= done_;
  }
  uint32_t mark_count() const override { return options_.marks; }

 private:
  const EngineOptions options_;
  mutable std::vector<std::byte> slots_;
  mutable std::vector<std::byte> staging_;
  std::vector<std::span<const std::byte>> pinned_;
  std::atomic<bool> copy_fails_{false};
  std::atomic<bool> query_fails_{false};
  std::atomic<bool> damages_{false};
  mutable std::mutex mutex_;
  std::vector<std::pair<uint64_t, std::span<const std::byte>>> copies_;
  std::vector<uint64_t> marked_;  // copies begun before the mark
  uint64_t allowed_ = 0;
  mutable uint64_t done_ = 0;
};

class Heard final : public UploadSink {
 public:
  Heard() { answers_.reserve(1024); }
  void OnUploaded(uint32_t index, const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    answers_.push_back({index, status});
    changed_.notify_all();
  }
  void Await(size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return answers_.size() >= count; }));
  }
  std::vector<uint32_t> order() const {
    const std::lock_guard lock(mutex_);
    std::vector<uint32_t> indices;
    for (const auto& [index, status] : answers_) indices.push_back(index);
    return indices;
  }
  std::vector<absl::Status> statuses() const {
    const std::lock_guard lock(mutex_);
    std::vector<absl::Status> all;
    for (const auto& [index, status] : answers_) all.push_back(status);
    return all;
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return answers_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<uint32_t, absl::Status>> answers_;
};

std::vector<std::byte> Pattern(uint64_t bytes, uint32_t seed) {
  std::vector<std::byte> pattern(bytes);
  for (uint64_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>((i * 7 + seed) % 251);
  return pattern;
}

SlotRef Slot(uint32_t i) { return {.pool = 0, .slot = SlotId(i)}; }

class UploadQueueTest : public testing::Test {
 protected:
  void Make(const EngineOptions& engine, const UploadQueueOptions& queue, uint32_t sources) {
    engine_ = std::make_unique<FakeEngine>(engine);
    for (uint32_t i = 0; i < sources; ++i) {
      sources_.push_back(Pattern(kSlotBytes, i));
    }
    queue_ = std::make_unique<UploadQueue>(*engine_, clock_, queue);
  }
  void PinAll() {
    for (const auto& source : sources_) engine_->Pin(source);
  }
  void Upload(uint32_t i) { queue_->Upload(Slot(i % kSlots), sources_[i], heard_, i); }

  SteadyClock clock_;
  std::unique_ptr<FakeEngine> engine_;
  std::vector<std::vector<std::byte>> sources_;
  Heard heard_;
  std::unique_ptr<UploadQueue> queue_;
};

TEST_F(UploadQueueTest, EveryUploadIsAnsweredInOrderWithItsBytesInTheSlot) {
  for (const bool pinned : {true, false}) {
    SCOPED_TRACE(pinned);
    Heard heard;
    queue_.reset();
    sources_.clear();
    Make({}, {.in_flight_max = 3, .waiting_max = 4}, 40);
    if (pinned) PinAll();
    for (uint32_t i = 0; i < 40; ++i) queue_->Upload(Slot(i % kSlots), sources_[i], heard, i);
    heard.Await(40);
    EXPECT_TRUE(std::ranges::is_sorted(heard.order()));
    for (const absl::Status& status : heard.statuses()) EXPECT_TRUE(status.ok()) << status;
    for (uint32_t s = 0; s < kSlots; ++s) {
      EXPECT_TRUE(std::ranges::equal(engine_->slot(s), sources_[32 + s])) << s;
    }
    const UploadStats stats = queue_->stats();
    EXPECT_EQ(stats.upload_count, 40u);
    EXPECT_EQ(stats.bytes, 40 * kSlotBytes);
    EXPECT_EQ(stats.staged_count, pinned ? 0u : 40u);
  }
}

TEST_F(UploadQueueTest, OnlyAFewAreUnderWayAtATime) {
  Make({.ends_at_once = false}, {.in_flight_max = 2}, 6);
  PinAll();
  for (uint32_t i = 0; i < 6; ++i) Upload(i);
  while (engine_->begun_count() < 2) YieldFor(50);
  YieldFor(200);
  EXPECT_EQ(engine_->begun_count(), 2u);
  engine_->EndUpTo(1);
  heard_.Await(1);
  engine_->EndUpTo(2);
  heard_.Await(2);
  EXPECT_LE(engine_->begun_count(), 4u);
  EXPECT_EQ(heard_.count(), 2u);
  engine_->EndAll();
  heard_.Await(6);
  EXPECT_TRUE(std::ranges::is_sorted(heard_.order()));
}

// Memory pinned in pieces is copied in as many; what one piece lacks makes the whole upload staged.
TEST_F(UploadQueueTest, SourcesAreReadInPlaceWhereEveryByteIsPinned) {
  Make({}, {}, 2);
  const std::span<const std::byte> first = sources_[0];
  engine_->Pin(first.first(1000));
  engine_->Pin(first.subspan(1000));
  engine_->Pin(std::span<const std::byte>(sources_[1]).first(1000));
  Upload(0);
  heard_.Await(1);
  EXPECT_EQ(engine_->begun_count(), 2u);
  Upload(1);
  heard_.Await(2);
  EXPECT_EQ(queue_->stats().staged_count, 1u);
  for (uint32_t s = 0; s < 2; ++s) {
    EXPECT_TRUE(std::ranges::equal(engine_->slot(s), sources_[s])) << s;
  }
}

// A piece of staging memory is written again only after its copy: else the slots would differ.
TEST_F(UploadQueueTest, StagingPiecesAreNotWrittenWhileTheyAreRead) {
  Make({.pieces = 2, .ends_at_once = false}, {.in_flight_max = 2}, 2);
  Upload(0);
  Upload(1);
  for (uint64_t copies = 1; copies <= 8; ++copies) {
    while (engine_->begun_count() < std::min<uint64_t>(copies + 1, 8)) YieldFor(50);
    YieldFor(200);
    EXPECT_LE(engine_->begun_count(), copies + 1);
    engine_->EndUpTo(copies);
  }
  heard_.Await(2);
  for (uint32_t s = 0; s < 2; ++s) {
    EXPECT_TRUE(std::ranges::equal(engine_->slot(s), sources_[s])) << s;
  }
}

TEST_F(UploadQueueTest, CopyThatNeverEndsBreaksTheQueueAndNobodyHangs) {
  for (const bool pinned : {true, false}) {
    Heard heard;
    queue_.reset();
    sources_.clear();
    Make({.ends_at_once = false}, {.in_flight_max = 2, .timeout_ns = 20'000'000}, 5);
    if (pinned) PinAll();
    for (uint32_t i = 0; i < 5; ++i) queue_->Upload(Slot(3), sources_[i], heard, i);
    heard.Await(5);
    for (const absl::Status& status : heard.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("slot 3 of pool 0"));
    }
    queue_->Upload(Slot(0), sources_[0], heard, 9);
    EXPECT_EQ(heard.order().back(), 9u);  // at once
    EXPECT_EQ(queue_->broken().code(), absl::StatusCode::kDeadlineExceeded);
    std::vector<std::byte> into(16);
    EXPECT_FALSE(queue_->Read(Slot(0), into).ok());
  }
}

TEST_F(UploadQueueTest, ErrorsOfTheEngineAreEveryonesAnswer) {
  for (const bool at_begin : {true, false}) {
    Heard heard;
    queue_.reset();
    sources_.clear();
    Make({.ends_at_once = false}, {.in_flight_max = 2}, 3);
    PinAll();
    engine_->FailCopies(at_begin);
    engine_->FailQueries(!at_begin);
    for (uint32_t i = 0; i < 3; ++i) queue_->Upload(Slot(i), sources_[i], heard, i);
    heard.Await(3);
    for (const absl::Status& status : heard.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    }
  }
}

TEST_F(UploadQueueTest, NoStagingMemoryIsAnErrorOfWhatNeedsIt) {
  Make({.pieces = 0, .piece_bytes = 0}, {}, 1);
  Upload(0);
  heard_.Await(1);
  EXPECT_EQ(heard_.statuses()[0].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(UploadQueueTest, ReadBackComparesEverySlotWhenAsked) {
  std::vector<std::byte> into(kSlotBytes);
  Make({}, {.verify_into = into}, 4);
  PinAll();
  Upload(0);
  heard_.Await(1);
  engine_->Damage(true);
  Upload(1);
  heard_.Await(2);
  engine_->Damage(false);
  Upload(2);
  heard_.Await(3);
  EXPECT_TRUE(heard_.statuses()[0].ok());
  EXPECT_EQ(heard_.statuses()[1].code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(heard_.statuses()[1].message()),
              HasSubstr("slot 1 of pool 0: byte 4095 of 4096"));
  EXPECT_TRUE(heard_.statuses()[2].ok());
}

TEST_F(UploadQueueTest, SlotsAreReadBackBesideUploads) {
  Make({}, {}, 1);
  PinAll();
  Upload(0);
  heard_.Await(1);
  std::vector<std::byte> into(kSlotBytes);
  ASSERT_TRUE(queue_->Read(Slot(0), into).ok());
  EXPECT_EQ(into, sources_[0]);
}

TEST_F(UploadQueueTest, EveryUploadIsAnsweredBeforeTheQueueIsGone) {
  Make({}, {.in_flight_max = 1}, 7);
  for (uint32_t i = 0; i < 7; ++i) Upload(i);
  queue_.reset();
  EXPECT_EQ(heard_.count(), 7u);
}

TEST_F(UploadQueueTest, AllocatesNothingAfterCreation) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  Make({}, {.in_flight_max = 2, .waiting_max = 4}, 8);
  for (uint32_t i = 0; i < 4; ++i) engine_->Pin(sources_[i]);
  const uint64_t before = AllocationCount();
  for (uint32_t i = 0; i < 100; ++i) {
    queue_->Upload(Slot(i % kSlots), sources_[i % 8], heard_, i);
  }
  heard_.Await(100);
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
