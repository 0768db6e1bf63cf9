// Which experts BlockTier keeps: what the policies say when a pass is over, what VRAM holds, and
// how much memory there is.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/block_tier.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace hearth {

void BlockTier::Observe(const LayerTraffic& traffic) {
  if (traffic.layer.value >= file_.layer_count()) return;
  const std::lock_guard lock(mutex_);
  PoolOf(traffic.layer).policy->Observe(traffic);
  for (const ExpertSighting& s : traffic.experts) {
    last_pass_[KeyIndex({traffic.layer, s.expert})] = pass_;
  }
}

void BlockTier::Seed(LayerId layer, std::span<const float> sightings) {
  if (layer.value >= file_.layer_count()) return;
  const std::lock_guard lock(mutex_);
  PoolOf(layer).policy->Seed(layer, sightings);
}

float BlockTier::Heat(ExpertKey key) const {
  if (!Known(key)) return 0;
  const std::lock_guard lock(mutex_);
  return pools_[table_.ClassOf(key.layer)].policy->Heat(key);
}

void BlockTier::EndWindow(uint32_t token_count) {
  std::vector<BlockId> gone;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    ++pass_;
    for (Pool& pool : pools_) {
      pool.policy->EndWindow(token_count);
      TrimResidents(pool);
    }
    AdmitCandidates();
    asks_.ClearHints();
    if (gone_due_count_ > 0) TakeGone(gone);
    wake = blocked_ && TakeWake();
  }
  if (wake) Wake();
  GiveBack(gone);
}

// The hottest first: so each pushes out the coldest that is left, and the first that is not hotter
// than that ends it for its class.
void BlockTier::AdmitCandidates() {
  for (Candidate& candidate : candidates_) {
    in_candidates_[candidate.block.value] = 0;
    // The mark is gone when the block has changed hands since.
    if (!table_.SetCandidate(candidate.block, false) || table_.resident(candidate.block)) {
      candidate.block = BlockId();
      continue;
    }
    const ExpertKey key = table_.key(candidate.block);
    candidate.heat = PoolOf(key.layer).policy->Heat(key);
  }
  std::erase_if(candidates_, [](const Candidate& c) { return !c.block.valid(); });
  std::sort(candidates_.begin(), candidates_.end(), [this](const Candidate& a, const Candidate& b) {
    return a.heat != b.heat ? a.heat > b.heat : table_.key(a.block) < table_.key(b.block);
  });
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    for (const Candidate& candidate : candidates_) {
      const ExpertKey key = table_.key(candidate.block);
      if (table_.ClassOf(key.layer) != c || held_in_vram_[KeyIndex(key)] != 0) continue;
      if (!Admit(candidate.block)) break;
    }
  }
  candidates_.clear();
}

// Makes the expert of a spare, valid block a resident where there is room or where it is hotter
// than the coldest one, which gives its block back when nobody leases it any more.
bool BlockTier::Admit(BlockId block) {
  const ExpertKey key = table_.key(block);
  if (held_in_vram_[KeyIndex(key)] != 0) return false;
  Pool& pool = PoolOf(key.layer);
  Swap swap{.in = key, .out = ExpertKey()};
  if (pool.policy->resident_count() >= pool.shape.slot_count) {
    swap.out = pool.policy->Coldest();
    if (!swap.out.layer.valid()) return false;
    if (pool.policy->Heat(key) <= pool.policy->Heat(swap.out)) return false;
  }
  pool.policy->Begin(swap);
  pool.policy->Land(swap);
  table_.SetResident(block, true);
  if (swap.out.layer.valid()) {
    table_.SetResident(table_.FindValid(swap.out), false, BlockTable::Reuse::kLate);
  }
  return true;
}

void BlockTier::RemoveResident(BlockId block, BlockTable::Reuse reuse) {
  const ExpertKey key = table_.key(block);
  PoolOf(key.layer).policy->Remove(key);
  table_.SetResident(block, false, reuse);
}

void BlockTier::TrimResidents(Pool& pool) {
  while (pool.policy->resident_count() > pool.shape.slot_count) {
    const ExpertKey coldest = pool.policy->Coldest();
    if (!coldest.layer.valid()) return;  // all in the pass at hand: when it is over
    RemoveResident(table_.FindValid(coldest), BlockTable::Reuse::kSoon);
  }
}

// A spare block; without one, that of the coldest resident that nobody uses.
BlockId BlockTier::TakeBlock(uint32_t cls) {
  if (const BlockId block = table_.Take(cls, held_elsewhere_); block.valid()) return block;
  const ExpertKey coldest = pools_[cls].policy->Coldest();
  if (!coldest.layer.valid()) return BlockId();
  BlockId block = table_.FindValid(coldest);
  if (InUse(block)) block = ColdestUnused(cls);
  if (!block.valid()) return BlockId();
  RemoveResident(block, BlockTable::Reuse::kSoon);
  return table_.Take(cls, held_elsewhere_);
}

bool BlockTier::InUse(BlockId block) const {
  return table_.lease_count(block) > 0 || (held_elsewhere_ && held_elsewhere_(block));
}

// Of the residents that the pass at hand has not used; looks at every block.
BlockId BlockTier::ColdestUnused(uint32_t cls) const {
  const BlockClass& blocks = table_.layout().classes[cls];
  BlockId coldest;
  float least = 0;
  for (uint32_t i = blocks.block_begin; i < blocks.block_begin + blocks.block_count; ++i) {
    const BlockId block(i);
    if (!table_.resident(block) || InUse(block)) continue;
    const ExpertKey key = table_.key(block);
    if (last_pass_[KeyIndex(key)] == pass_) continue;
    const float heat = pools_[cls].policy->Heat(key);
    if (coldest.valid() && heat >= least) continue;
    least = heat;
    coldest = block;
  }
  return coldest;
}

void BlockTier::SetHeldInVram(ExpertKey key, bool held) {
  if (!Known(key)) return;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    held_in_vram_[KeyIndex(key)] = held ? 1 : 0;
    const BlockId block = table_.FindValid(key);
    if (!block.valid()) return;
    if (held && table_.resident(block)) RemoveResident(block, BlockTable::Reuse::kSoon);
    if (!held) NoteUse(block);
    wake = blocked_ && TakeWake();
  }
  if (wake) Wake();
}

void BlockTier::Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) {
  SetHeldInVram(in, true);
  if (!Known(out)) return;
  SetHeldInVram(out, false);
  const uint64_t blob_bytes = file_.layout(out.layer).blob_bytes();
  if (out_bytes.size() < blob_bytes) return;  // they could not be had
  BlockId block;
  {
    const std::lock_guard lock(mutex_);
    if (const BlockId there = table_.Find(out); there.valid()) {
      if (table_.valid(there) && !table_.resident(there)) Admit(there);
      return;
    }
    // What VRAM holds now makes room for what it has given up.
    block = table_.Take(table_.ClassOf(out.layer), held_elsewhere_);
    if (!block.valid()) return;  // everything is in use: `out` will be read when it is asked for
    if (options_.testing_on_take) options_.testing_on_take(bytes(block));
    table_.Fill(block, out);
  }
  std::memcpy(bytes(block).data(), out_bytes.data(), blob_bytes);
  std::vector<Arrival> askers;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    table_.Validate(block);
    ++stats_.exchange_count;
    Admit(block);
    HandOut(out, block, askers);
    wake = blocked_ && TakeWake();
  }
  if (wake) Wake();
  for (const Arrival& arrival : askers) arrival(block);
}

void BlockTier::Lower(uint64_t memory_bytes) {
  std::vector<BlockId> gone;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t least_bytes = LeastBlockBytes(file_);
    if (memory_bytes < least_bytes) {
      notes_.push_back(absl::StrCat("RAM for experts was lowered to ", FormatBytes(least_bytes),
                                    ", the least that works, not to ", FormatBytes(memory_bytes)));
      memory_bytes = least_bytes;
    }
    if (memory_bytes >= memory_bytes_) return;
    memory_bytes_ = memory_bytes;
    const absl::StatusOr<BlockLayout> layout = LayOutBlocks(file_, memory_bytes);
    HEARTH_CHECK(layout.ok());
    for (uint32_t c = 0; c < pools_.size(); ++c) {
      const BlockClass& cls = layout->classes[c];
      Pool& pool = pools_[c];
      const uint32_t usable = table_.usable_count(c);
      const uint32_t count = std::min(cls.block_count, usable - pool.gone_due_count);
      gone_due_count_ += usable - count - pool.gone_due_count;
      pool.gone_due_count = usable - count;
      pool.shape.slot_count =
          std::min(pool.shape.slot_count, SlotsOf(cls, count, options_.landing_count));
      pool.policy->Resize(pool.shape.slot_count);
      TrimResidents(pool);
    }
    TakeGone(gone);
    reopen_due_ = options_.reopen != nullptr && registered_;
    wake = TakeWake();
  }
  if (wake) Wake();
  GiveBack(gone);
}

void BlockTier::TakeGone(std::vector<BlockId>& gone) {
  for (uint32_t c = 0; c < pools_.size(); ++c) {
    Pool& pool = pools_[c];
    while (pool.gone_due_count > 0) {
      const BlockId block = table_.Take(c, held_elsewhere_);
      if (!block.valid()) break;
      table_.Retire(block);
      gone.push_back(block);
      --pool.gone_due_count;
      --gone_due_count_;
    }
  }
}

// Shared memory gives its pages back to everybody's loss, private memory to its own process's.
void BlockTier::GiveBack(std::span<const BlockId> gone) {
  for (const BlockId block : gone) {
    const std::span<std::byte> memory = bytes(block);
    if (::madvise(memory.data(), memory.size(), MADV_REMOVE) == 0) continue;
    if (::madvise(memory.data(), memory.size(), MADV_DONTNEED) == 0) continue;
    const int error = errno;
    const std::lock_guard lock(mutex_);
    notes_.push_back(
        absl::StrCat("memory of an expert was not given back: ", std::strerror(error)));
  }
}

}  // namespace hearth
