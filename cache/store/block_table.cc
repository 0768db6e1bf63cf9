#include "cache/store/block_table.h"

#include <utility>

#include "runtime/base/check.h"

namespace hearth {

BlockTable::BlockTable(BlockLayout layout, uint32_t expert_count)
    : layout_(std::move(layout)),
      expert_count_(expert_count),
      blocks_(layout_.block_count + layout_.classes.size()),
      block_of_key_(layout_.class_of_layer.size() * expert_count, BlockId().value) {
  for (uint32_t c = 0; c < layout_.classes.size(); ++c) {
    const uint32_t ends = layout_.block_count + c;
    blocks_[ends].previous = blocks_[ends].next = ends;
    const BlockClass& cls = layout_.classes[c];
    usable_count_.push_back(cls.block_count);
    for (uint32_t i = cls.block_begin; i < cls.block_begin + cls.block_count; ++i) {
      blocks_[i].cls = c;
      List(i, Reuse::kLate);
    }
  }
}

BlockTable::Block& BlockTable::at(BlockId block) {
  HEARTH_CHECK(block.value < layout_.block_count);
  return blocks_[block.value];
}

const BlockTable::Block& BlockTable::at(BlockId block) const {
  HEARTH_CHECK(block.value < layout_.block_count);
  return blocks_[block.value];
}

uint64_t BlockTable::OffsetOf(BlockId block) const {
  const BlockClass& cls = layout_.classes[at(block).cls];
  return cls.memory_offset_bytes + (block.value - cls.block_begin) * cls.block_bytes;
}

uint64_t BlockTable::BytesOf(BlockId block) const {
  return layout_.classes[at(block).cls].block_bytes;
}

BlockId BlockTable::FindValid(ExpertKey key) const {
  const BlockId block = Find(key);
  return block.valid() && valid(block) ? block : BlockId();
}

void BlockTable::List(uint32_t index, Reuse reuse) {
  Block& b = blocks_[index];
  HEARTH_CHECK(!b.listed);
  const uint32_t ends = layout_.block_count + b.cls;
  b.previous = reuse == Reuse::kSoon ? ends : blocks_[ends].previous;
  b.next = reuse == Reuse::kSoon ? blocks_[ends].next : ends;
  blocks_[b.previous].next = index;
  blocks_[b.next].previous = index;
  b.listed = true;
}

void BlockTable::Unlist(uint32_t index) {
  Block& b = blocks_[index];
  HEARTH_CHECK(b.listed);
  blocks_[b.previous].next = b.next;
  blocks_[b.next].previous = b.previous;
  b.listed = false;
}

void BlockTable::ListIfSpare(BlockId block, Reuse reuse) {
  const Block& b = at(block);
  if (b.state == State::kValid && !b.resident && b.lease_count == 0) List(block.value, reuse);
}

void BlockTable::DropKey(Block& block) {
  block_of_key_[KeyIndex(block.key)] = BlockId().value;
  block.key = ExpertKey();
  block.candidate = block.unasked = false;
}

BlockId BlockTable::Take(uint32_t cls, const RamBlocks::HeldElsewhere& held) {
  const uint32_t ends = layout_.block_count + cls;
  for (uint32_t i = blocks_[ends].next; i != ends; i = blocks_[i].next) {
    Block& b = blocks_[i];
    if (b.state == State::kValid) {
      if (held && held(BlockId(i))) continue;
      DropKey(b);
      --valid_count_;
    }
    b.state = State::kTaken;
    Unlist(i);
    return BlockId(i);
  }
  return BlockId();
}

void BlockTable::Fill(BlockId block, ExpertKey key) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kTaken);
  HEARTH_CHECK(!Find(key).valid() && ClassOf(key.layer) == b.cls);
  b.state = State::kFilling;
  b.key = key;
  block_of_key_[KeyIndex(key)] = block.value;
}

void BlockTable::Validate(BlockId block) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kFilling);
  b.state = State::kValid;
  ++valid_count_;
  List(block.value, Reuse::kLate);
}

void BlockTable::Abandon(BlockId block, bool still_written) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kFilling);
  DropKey(b);
  b.state = still_written ? State::kAbandoned : State::kEmpty;
  if (!still_written) List(block.value, Reuse::kSoon);
}

void BlockTable::Recover(BlockId block) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kAbandoned);
  b.state = State::kEmpty;
  List(block.value, Reuse::kSoon);
}

void BlockTable::Retire(BlockId block) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kTaken);
  b.state = State::kGone;
  --usable_count_[b.cls];
}

void BlockTable::Lease(BlockId block, uint32_t count) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kValid);
  if (b.listed) Unlist(block.value);
  b.lease_count += count;
}

void BlockTable::Release(BlockId block) {
  Block& b = at(block);
  HEARTH_CHECK(b.lease_count > 0);
  if (--b.lease_count == 0) ListIfSpare(block, Reuse::kLate);
}

void BlockTable::SetResident(BlockId block, bool resident, Reuse reuse) {
  Block& b = at(block);
  HEARTH_CHECK(b.state == State::kValid && b.resident != resident);
  b.resident = resident;
  if (b.listed) Unlist(block.value);
  ListIfSpare(block, reuse);
}

void BlockTable::CheckInvariants() const {
  uint32_t valid = 0;
  for (uint32_t i = 0; i < layout_.block_count; ++i) {
    const Block& b = blocks_[i];
    const bool has_key = b.state == State::kFilling || b.state == State::kValid;
    HEARTH_CHECK(has_key == b.key.layer.valid());
    if (has_key) HEARTH_CHECK(Find(b.key).value == i);
    HEARTH_CHECK(b.state == State::kValid || (b.lease_count == 0 && !b.resident));
    const bool spare = b.state == State::kValid && !b.resident && b.lease_count == 0;
    HEARTH_CHECK(b.listed == (spare || b.state == State::kEmpty));
    valid += b.state == State::kValid ? 1 : 0;
  }
  HEARTH_CHECK(valid == valid_count_);
  for (uint32_t k = 0; k < block_of_key_.size(); ++k) {
    if (block_of_key_[k] == BlockId().value) continue;
    HEARTH_CHECK(KeyIndex(blocks_[block_of_key_[k]].key) == k);
  }
}

}  // namespace hearth
