#include "cache/store/private_reads.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

std::optional<PrivateReads::Lease> PrivateReads::Find(ExpertKey key) {
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (block.key != key) continue;
    ++block.lease_count;
    block.used = ++use_count_;
    return Lease{i, block.memory->data()};
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<PrivateReads::Lease>> PrivateReads::Take() {
  uint32_t chosen = block_count_max_;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.lease_count > 0) continue;
    if (chosen == block_count_max_ || block.used < blocks_[chosen].used) chosen = i;
  }
  // A block without an expert first, then a further one, then the coldest.
  const bool is_empty = chosen != block_count_max_ && !blocks_[chosen].key.has_value();
  if (!is_empty && blocks_.size() < block_count_max_) {
    chosen = static_cast<uint32_t>(blocks_.size());
    blocks_.emplace_back();
  }
  if (chosen == block_count_max_) return std::optional<Lease>();
  Block& block = blocks_[chosen];
  block.key.reset();
  if (!block.memory.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(block.memory, AnonymousMapping::Create(block_bytes_));
  }
  block.lease_count = 1;
  block.used = ++use_count_;
  return std::optional<Lease>({chosen, block.memory->data()});
}

void PrivateReads::Filled(uint32_t block, ExpertKey key) { blocks_[block].key = key; }

void PrivateReads::Release(uint32_t block) {
  HEARTH_CHECK(blocks_[block].lease_count > 0);
  --blocks_[block].lease_count;
}

void PrivateReads::Shrink() {
  for (Block& block : blocks_) {
    if (block.lease_count > 0) continue;
    block = Block();
  }
}

uint64_t PrivateReads::bytes() const {
  uint64_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.memory.has_value() ? block_bytes_ : 0;
  return bytes;
}

}  // namespace hearth
