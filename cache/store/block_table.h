// Who is in which block of a RAM tier. Bookkeeping only: no lock, no I/O, no policy; the owner
// locks. Allocates nothing after construction.
//
// The life of a block:
//   empty -> taken -> filling (for one expert, somebody writes to it) -> valid -> ... -> taken
//                          \-> abandoned (its read was given up, it may still be written to) ->
//                          empty
//                 \-> gone: its memory was given back for good
// A valid block is resident (the policy keeps it) or spare. Empty blocks and spare valid ones that
// nobody leases form the spare list of their class, from which Take() serves, the oldest first: so
// a newcomer stays found until its block is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/store/block_layout.h"
#include "cache/store/ram_blocks.h"
#include "runtime/base/ids.h"

namespace hearth {

class BlockTable {
 public:
  // Which end of the spare list: blocks at kSoon are taken first.
  enum class Reuse : uint8_t { kSoon, kLate };

  BlockTable(BlockLayout layout, uint32_t expert_count);

  const BlockLayout& layout() const { return layout_; }
  uint32_t ClassOf(LayerId layer) const { return layout_.class_of_layer[layer.value]; }
  uint64_t OffsetOf(BlockId block) const;  // in the memory
  uint64_t BytesOf(BlockId block) const;

  // The block of `key`, valid or filling; invalid when there is none.
  BlockId Find(ExpertKey key) const { return BlockId(block_of_key_[KeyIndex(key)]); }
  BlockId FindValid(ExpertKey key) const;
  ExpertKey key(BlockId block) const { return at(block).key; }
  bool valid(BlockId block) const { return at(block).state == State::kValid; }
  bool resident(BlockId block) const { return at(block).resident; }
  uint32_t lease_count(BlockId block) const { return at(block).lease_count; }
  uint32_t valid_count() const { return valid_count_; }
  uint32_t usable_count(uint32_t cls) const { return usable_count_[cls]; }  // not gone

  // A block out of the spare list, whose former expert is forgotten; invalid when each is leased or
  // held elsewhere.
  BlockId Take(uint32_t cls, const RamBlocks::HeldElsewhere& held);
  // `key`, which has no block, is being written into a taken one.
  void Fill(BlockId block, ExpertKey key);
  void Validate(BlockId block);  // the bytes are there; spare, not leased
  // The filling failed: `key` has no block any more. While `still_written` nobody may have it.
  void Abandon(BlockId block, bool still_written);
  void Recover(BlockId block);  // nothing writes to an abandoned block any more
  // A taken block's memory is given back.
  void Retire(BlockId block);

  void Lease(BlockId block, uint32_t count = 1);
  void Release(BlockId block);
  void SetResident(BlockId block, bool resident, Reuse reuse = Reuse::kLate);
  // Marks that follow a valid block until it is taken. Each says what was there before.
  bool SetCandidate(BlockId block, bool on) { return std::exchange(at(block).candidate, on); }
  bool SetUnasked(BlockId block, bool on) { return std::exchange(at(block).unasked, on); }

  // Stops at a broken invariant. For tests: looks at every block.
  void CheckInvariants() const;

 private:
  enum class State : uint8_t { kEmpty, kTaken, kFilling, kValid, kAbandoned, kGone };
  struct Block {
    ExpertKey key;
    uint32_t lease_count = 0;
    State state = State::kEmpty;
    bool resident = false;
    bool candidate = false;  // might become resident when the pass is over
    bool unasked = false;    // read ahead, and nobody has asked for it since
    bool listed = false;     // in the spare list
    uint32_t cls = 0;
    uint32_t previous = 0;  // in the spare list; the list of class c has its ends in
    uint32_t next = 0;      // blocks_[block_count + c]
  };

  Block& at(BlockId block);
  const Block& at(BlockId block) const;
  uint32_t KeyIndex(ExpertKey key) const {
    return key.layer.value * expert_count_ + key.expert.value;
  }
  void List(uint32_t index, Reuse reuse);
  void Unlist(uint32_t index);
  void ListIfSpare(BlockId block, Reuse reuse);
  void DropKey(Block& block);

  const BlockLayout layout_;
  const uint32_t expert_count_;
  std::vector<Block> blocks_;  // (block_count + classes)
  std::vector<uint32_t> block_of_key_;
  std::vector<uint32_t> usable_count_;  // by class
  uint32_t valid_count_ = 0;
};

}  // namespace hearth
