// The I/O thread of BlockTier: starts reads while there are blocks and room in the reader, and
// hands each blob out the moment it has landed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/blob_check.h"
#include "cache/store/block_tier.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr int64_t kWaitNsMax = 1'000'000'000;
// Blocks that other processes hold come back without a word: looked at so often while demand waits.
constexpr int64_t kHeldPollNs = 500'000;
// Hints under way at a time: demand that comes meanwhile waits for no more than these.
constexpr uint32_t kHintReadsMax = 2;

// Each asker has a status of its own, which shares nothing with those of other threads.
absl::Status Detached(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace

void BlockTier::IoMain() {
  for (;;) {
    int64_t wait_ns = 0;
    bool reopen = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      reopen = reopen_due_ && reads_.blob_count() == 0;
      if (!reopen) wait_ns = StartReads();
      wake_needed_ = true;
    }
    if (reopen) ReopenReader();
    // First of all the drive gets something to do, then what has come is checked and handed out.
    reads_.Submit();
    FailLateAsks();
    if (!landings_.empty()) {
      for (const Landing& landing : landings_) FinishLanding(landing);
      landings_.clear();
      continue;
    }
    if (reads_.ended().empty()) {
      if (const absl::Status status = reads_.Wait(wait_ns); !status.ok()) return Close(status);
    }
    FailGivenUp(reads_.GiveUpLate());
    CollectEnded();
  }
  Close(absl::CancelledError("the RAM tier is closing"));
}

int64_t BlockTier::StartReads() {
  // What is under way ends first, except what has been given up: that may take for ever.
  if (reopen_due_ && reads_.next_late_ns() == INT64_MAX) reopen_due_ = false;
  if (!reopen_due_) {
    StartDemand();
    StartHints();
  }
  const int64_t now_ns = clock_.NowNs();
  int64_t wait_ns = blocked_ && held_elsewhere_ ? kHeldPollNs : kWaitNsMax;
  if (const int64_t late_ns = reads_.next_late_ns(); late_ns - now_ns < wait_ns) {
    wait_ns = late_ns - now_ns;
  }
  AskQueue::Demand demand;
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    if (!asks_.FrontDemand(c, &demand)) continue;
    wait_ns = std::min(wait_ns, demand.since_ns + options_.read_timeout_ns - now_ns);
  }
  return std::max<int64_t>(wait_ns, 0);
}

// Nothing is under way. A failure leaves the old reader, which works as well.
void BlockTier::ReopenReader() {
  absl::StatusOr<std::unique_ptr<Reader>> reader = options_.reopen();  // in the end, the old one
  const std::lock_guard lock(mutex_);
  reopen_due_ = false;
  if (!reader.ok()) {
    notes_.push_back(absl::StrCat("memory that was lowered stays pinned by the reader of ",
                                  file_.file().path(), ": ", reader.status().message()));
    return;
  }
  std::swap(reader_, *reader);
  reads_.ChangeReader(*reader_);
  registered_ = reader_->traits().registered;
  reader_note_count_ = reader_->traits().notes.size();
}

bool BlockTier::StartRead(ExpertKey key, bool unasked) {
  const uint32_t cls = table_.ClassOf(key.layer);
  // A hint is worth no resident.
  const BlockId block = unasked ? table_.Take(cls, held_elsewhere_) : TakeBlock(cls);
  if (!block.valid()) return false;
  if (options_.testing_on_take) options_.testing_on_take(bytes(block));
  table_.Fill(block, key);
  table_.SetUnasked(block, unasked);
  if (!unasked) ++demand_in_flight_count_;
  reads_.Add(block, file_.offset_bytes(key), bytes(block));
  return true;
}

void BlockTier::StartDemand() {
  blocked_ = false;
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    AskQueue::Demand demand;
    while (reads_.has_room() && asks_.FrontDemand(c, &demand)) {
      const ExpertKey key = KeyAt(demand.key);
      if (!table_.Find(key).valid() && !StartRead(key, false)) {
        blocked_ = true;
        break;
      }
      asks_.PopDemand(c);
    }
  }
}

void BlockTier::StartHints() {
  if (!asks_.demand_empty() || demand_in_flight_count_ > 0) return;
  uint32_t key_index;
  while (reads_.has_room() && reads_.blob_count() < kHintReadsMax && asks_.PopHint(&key_index)) {
    const ExpertKey key = KeyAt(key_index);
    if (table_.Find(key).valid() || held_in_vram_[key_index] != 0) continue;
    if (!StartRead(key, true)) return;
  }
}

// Asks for which no block has become free in all the time that a read may take.
void BlockTier::FailLateAsks() {
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    for (;;) {
      ExpertKey key;
      {
        const std::lock_guard lock(mutex_);
        AskQueue::Demand demand;
        if (!asks_.FrontDemand(c, &demand)) break;
        if (clock_.NowNs() - demand.since_ns < options_.read_timeout_ns) break;
        key = KeyAt(demand.key);
        asks_.TakeAskers(demand.key, deliveries_);
      }
      Deliver(ReadError(
          key, absl::DeadlineExceededError(absl::StrCat(
                   "not read for ", options_.read_timeout_ns / 1'000'000, " ms: ",
                   reads_.has_room() ? "all blocks of its class are in use; a larger --ram-budget "
                                       "has more of them"
                                     : "the drive has not finished earlier reads"))));
    }
  }
}

void BlockTier::CollectEnded() {
  // The reader may have stepped down meanwhile.
  const std::vector<std::string>& reader_notes = reader_->traits().notes;
  if (reads_.ended().empty() && reader_notes.size() == reader_note_count_) return;
  const std::lock_guard lock(mutex_);
  for (; reader_note_count_ < reader_notes.size(); ++reader_note_count_) {
    notes_.push_back(reader_notes[reader_note_count_]);
  }
  for (const BlobReads::Ended& ended : reads_.ended()) {
    if (ended.given_up) {
      table_.Recover(ended.block);
      continue;
    }
    const bool unasked = table_.SetUnasked(ended.block, false);
    if (unasked) table_.SetUnasked(ended.block, true);
    if (!unasked) --demand_in_flight_count_;
    landings_.push_back({ended.block, table_.key(ended.block), ended.status});
    if (!ended.status.ok()) continue;
    ++stats_.read_count;
    if (unasked) ++stats_.lookahead_read_count;
    stats_.read_bytes += table_.BytesOf(ended.block);
  }
  stats_.read_busy_ns = reads_.busy_ns();
  reads_.ClearEnded();
}

absl::Status BlockTier::CheckLanding(const Landing& landing) {
  if (!landing.status.ok()) return landing.status;
  uint8_t& checked = checked_[KeyIndex(landing.key)];
  if (!options_.check_first_read || checked != 0) return absl::OkStatus();
  HEARTH_RETURN_IF_ERROR(CheckBlob(file_, landing.key, bytes(landing.block)));
  checked = 1;
  return absl::OkStatus();
}

void BlockTier::FinishLanding(const Landing& landing) {
  const absl::Status status = CheckLanding(landing);
  {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      table_.Validate(landing.block);
      HandOut(landing.key, landing.block, deliveries_);
    } else {
      table_.Abandon(landing.block, false);
      asks_.TakeAskers(KeyIndex(landing.key), deliveries_);
    }
  }
  if (status.ok()) return Deliver(landing.block);
  Deliver(ReadError(landing.key, status));
}

void BlockTier::FailGivenUp(std::span<const BlobReads::GivenUp> given_up) {
  for (const BlobReads::GivenUp& read : given_up) {
    ExpertKey key;
    {
      const std::lock_guard lock(mutex_);
      key = table_.key(read.block);
      if (!table_.SetUnasked(read.block, false)) --demand_in_flight_count_;
      table_.Abandon(read.block, true);
      asks_.TakeAskers(KeyIndex(key), deliveries_);
    }
    Deliver(ReadError(key, read.status));
  }
}

void BlockTier::Close(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = Detached(why);
  }
  CollectEnded();
  for (const Landing& landing : landings_) FinishLanding(landing);
  landings_.clear();
  FailGivenUp(reads_.GiveUpAll(why));
  CollectEnded();
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    for (;;) {
      ExpertKey key;
      {
        const std::lock_guard lock(mutex_);
        AskQueue::Demand demand;
        if (!asks_.FrontDemand(c, &demand)) break;
        key = KeyAt(demand.key);
        asks_.PopDemand(c);
        // Its bytes are about to come out of VRAM: whoever brings them hands them out.
        if (table_.Find(key).valid()) continue;
        asks_.TakeAskers(KeyIndex(key), deliveries_);
      }
      Deliver(ReadError(key, why));
    }
  }
}

void BlockTier::Deliver(const absl::StatusOr<BlockId>& block) {
  for (const Arrival& arrival : deliveries_) {
    if (block.ok()) {
      arrival(block);
    } else {
      arrival(Detached(block.status()));
    }
  }
  deliveries_.clear();
}

}  // namespace hearth
