#include "cache/store/block_tier.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/blob_check.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kLandingMin = 2;
constexpr uint64_t kLandingMax = 96;
constexpr uint64_t kLandingShare = 8;  // one block in so many

std::vector<uint32_t> KeyCounts(const BlockLayout& layout) {
  std::vector<uint32_t> counts;
  for (const BlockClass& cls : layout.classes) counts.push_back(cls.key_count);
  return counts;
}

}  // namespace

uint32_t BlockTier::SlotsOf(const BlockClass& cls, uint32_t block_count, uint64_t landing_count) {
  // With a block for every expert each has its own to land in.
  if (block_count >= cls.key_count) return cls.key_count;
  const uint64_t landing = landing_count != 0 ? landing_count
                                              : std::clamp<uint64_t>(block_count / kLandingShare,
                                                                     kLandingMin, kLandingMax);
  return block_count - static_cast<uint32_t>(std::min<uint64_t>(landing, block_count - 1));
}

BlockTier::BlockTier(const ExpertFile& file, Clock& clock, const RamBlocksOptions& options,
                     Parts parts)
    : file_(file),
      clock_(clock),
      options_(options),
      memory_(parts.memory),
      held_elsewhere_(std::move(parts.held_elsewhere)),
      reader_(std::move(parts.reader)),
      table_(parts.layout, file.expert_count()),
      asks_(file.layer_count() * file.expert_count(), KeyCounts(parts.layout)),
      held_in_vram_(size_t{file.layer_count()} * file.expert_count()),
      last_pass_(held_in_vram_.size()),
      in_candidates_(parts.layout.block_count),
      memory_bytes_(parts.memory.size()),
      notes_(reader_->traits().notes),
      reads_(*reader_, clock,
             {.requests_per_blob = options.blob_requests,
              .blobs_in_flight_max =
                  std::clamp(reader_->traits().in_flight_max / options.blob_requests, 1u,
                             options.blobs_in_flight_max),
              .timeout_ns = options.read_timeout_ns}),
      checked_(held_in_vram_.size()),
      reader_note_count_(notes_.size()) {
  for (size_t c = 0; c < parts.policies.size(); ++c) {
    pools_.push_back({std::move(parts.shapes[c]), std::move(parts.policies[c])});
  }
  registered_ = reader_->traits().registered;
  candidates_.reserve(parts.layout.block_count);
  landings_.reserve(options.blobs_in_flight_max);
  deliveries_.reserve(kAskersMax);
  io_thread_ = std::thread([this] { IoMain(); });
}

BlockTier::~BlockTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  io_thread_.join();
}

BlockId BlockTier::Find(ExpertKey key) const {
  if (!Known(key)) return BlockId();
  const std::lock_guard lock(mutex_);
  return table_.FindValid(key);
}

BlockId BlockTier::Lease(ExpertKey key) {
  if (!Known(key)) return BlockId();
  const std::lock_guard lock(mutex_);
  const BlockId block = table_.FindValid(key);
  if (!block.valid()) return block;
  table_.Lease(block);
  NoteUse(block);
  return block;
}

void BlockTier::Release(BlockId block) {
  std::vector<BlockId> gone;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    table_.Release(block);
    if (gone_due_count_ > 0) TakeGone(gone);
    wake = blocked_ && TakeWake();
  }
  if (wake) Wake();
  GiveBack(gone);
}

std::span<std::byte> BlockTier::bytes(BlockId block) const {
  return memory_.subspan(table_.OffsetOf(block), table_.BytesOf(block));
}

ExpertKey BlockTier::key(BlockId block) const {
  const std::lock_guard lock(mutex_);
  return table_.key(block);
}

// The block's expert is used: were it read ahead, that was worth it; were it spare, it might be
// worth keeping.
void BlockTier::NoteUse(BlockId block) {
  if (table_.SetUnasked(block, false)) ++stats_.lookahead_used_count;
  if (table_.resident(block)) return;
  table_.SetCandidate(block, true);
  if (std::exchange(in_candidates_[block.value], 1) == 0) candidates_.push_back({0, block});
}

void BlockTier::Wake() {
  const std::lock_guard lock(mutex_);
  reader_->Wake();
}

bool BlockTier::TakeWake() { return std::exchange(wake_needed_, false); }

absl::Status BlockTier::ReadError(ExpertKey key, const absl::Status& status) const {
  return ExpertError(file_, key, status);
}

void BlockTier::Fetch(ExpertKey key, Arrival arrival) {
  absl::StatusOr<BlockId> now = BlockId();
  bool wake = false;
  if (!Known(key)) {
    now = absl::NotFoundError(absl::StrCat(file_.file().path(), ": no expert ", key.expert.value,
                                           " in layer ", key.layer.value));
  } else {
    const std::lock_guard lock(mutex_);
    const BlockId block = table_.Find(key);
    if (block.valid() && table_.valid(block)) {
      table_.Lease(block);
      NoteUse(block);
      now = block;
    } else if (!closed_.ok()) {
      now = ReadError(key, closed_);
    } else if (!asks_.AddAsker(KeyIndex(key), arrival)) {
      now = ReadError(key, absl::ResourceExhaustedError(absl::StrCat(
                               kAskersMax, " asks for experts wait already; ask again later")));
    } else {
      if (!block.valid()) {
        asks_.PushDemand(table_.ClassOf(key.layer), KeyIndex(key), clock_.NowNs());
      } else if (table_.SetUnasked(block, false)) {
        ++stats_.lookahead_read_count;
        ++stats_.lookahead_used_count;
        ++demand_in_flight_count_;
      }
      wake = TakeWake();
    }
  }
  if (wake) Wake();
  if (arrival && (!now.ok() || now->valid())) arrival(std::move(now));
}

void BlockTier::LookAhead(ExpertKey key) {
  if (!Known(key)) return;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.ok() || table_.Find(key).valid() || held_in_vram_[KeyIndex(key)] != 0) return;
    asks_.PushHint(KeyIndex(key));
    wake = demand_in_flight_count_ == 0 && asks_.demand_empty() && TakeWake();
  }
  if (wake) Wake();
}

// The bytes of `key` are in `block`: one lease for each of its askers.
void BlockTier::HandOut(ExpertKey key, BlockId block, std::vector<Arrival>& askers) {
  asks_.TakeAskers(KeyIndex(key), askers);
  if (askers.empty()) return;
  table_.Lease(block, static_cast<uint32_t>(askers.size()));
  NoteUse(block);
}

// Shared by the filling thread and the arrivals of its reads.
struct BlockTier::FillState {
  explicit FillState(BlockTier& filled) : tier(filled) {}
  BlockTier& tier;
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t under_way_count = 0;
  uint64_t done_bytes = 0;
  absl::Status status;
};

void BlockTier::FinishFill(FillState& fill, const absl::StatusOr<BlockId>& block) {
  uint64_t bytes = 0;
  if (block.ok()) {
    bytes = table_.BytesOf(*block);
    {
      const std::lock_guard lock(mutex_);
      if (!table_.resident(*block)) Admit(*block);
    }
    Release(*block);
  }
  const std::lock_guard lock(fill.mutex);
  fill.done_bytes += bytes;
  --fill.under_way_count;
  if (!block.ok()) fill.status.Update(block.status());
  fill.changed.notify_all();  // with the lock: the waiter may end the state once it has it
}

std::vector<ExpertKey> BlockTier::FillOrder() const {
  std::vector<ExpertKey> order;
  for (const Pool& pool : pools_) {
    std::vector<ExpertKey> hottest(pool.shape.layers.size() * pool.shape.expert_count);
    hottest.resize(HottestExperts(*pool.policy, pool.shape, hottest));
    uint32_t room = pool.shape.slot_count - pool.policy->resident_count();
    for (const ExpertKey key : hottest) {
      if (room == 0) break;
      if (pool.policy->resident(key) || held_in_vram_[KeyIndex(key)] != 0) continue;
      order.push_back(key);
      --room;
    }
  }
  std::sort(order.begin(), order.end());  // as they lie in the file
  return order;
}

absl::Status BlockTier::Fill(const std::function<void(uint64_t, uint64_t)>& progress) {
  std::vector<ExpertKey> order;
  {
    const std::lock_guard lock(mutex_);
    order = FillOrder();
  }
  uint64_t total_bytes = 0;
  for (const ExpertKey key : order) total_bytes += file_.layout(key.layer).stride_bytes();
  // Twice what is in flight: the drive never waits for this thread. Never all blocks.
  const uint32_t under_way_max = 2 * options_.blobs_in_flight_max;
  FillState fill(*this);
  std::unique_lock lock(fill.mutex);
  for (const ExpertKey key : order) {
    fill.changed.wait(lock, [&] { return fill.under_way_count < under_way_max; });
    if (!fill.status.ok()) break;
    if (filling_stopped_.load()) {
      fill.status = absl::CancelledError("filling RAM was stopped");
      break;
    }
    ++fill.under_way_count;
    const uint64_t done_bytes = fill.done_bytes;
    lock.unlock();
    if (progress) progress(done_bytes, total_bytes);
    Fetch(key,
          [&fill](const absl::StatusOr<BlockId>& block) { fill.tier.FinishFill(fill, block); });
    lock.lock();
  }
  fill.changed.wait(lock, [&] { return fill.under_way_count == 0; });
  HEARTH_RETURN_IF_ERROR(fill.status);
  if (progress) progress(total_bytes, total_bytes);
  return absl::OkStatus();
}

StoreStats BlockTier::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.resident_count = table_.valid_count();
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    stats.capacity_bytes += table_.usable_count(c) * table_.layout().classes[c].block_bytes;
  }
  return stats;
}

std::vector<std::string> BlockTier::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

bool BlockTier::resident(ExpertKey key) const {
  const std::lock_guard lock(mutex_);
  return Known(key) && pools_[table_.ClassOf(key.layer)].policy->resident(key);
}

void BlockTier::CheckInvariants() const {
  const std::lock_guard lock(mutex_);
  table_.CheckInvariants();
  for (uint32_t i = 0; i < table_.layout().block_count; ++i) {
    const BlockId block(i);
    if (!table_.valid(block)) continue;
    const ExpertKey key = table_.key(block);
    HEARTH_CHECK(pools_[table_.ClassOf(key.layer)].policy->resident(key) == table_.resident(block));
  }
}

}  // namespace hearth
