// Experts read by the engine itself into a bounded number of blocks: what RemoteStore falls back
// on while no daemon answers. Reads are plain preads with a checksum, one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"

namespace hearth {

// Bookkeeping of the blocks; the owner locks. A block keeps its expert until it is needed, the one
// used longest ago first.
class PrivateReads {
 public:
  // Memory is taken block by block as it is needed: at most `block_count` of `block_bytes`.
  PrivateReads(uint64_t block_bytes, uint32_t block_count)
      : block_bytes_(block_bytes), block_count_max_(block_count) {}

  struct Lease {
    uint32_t block = 0;
    std::span<std::byte> bytes;
  };
  // The block that has `key`, leased.
  std::optional<Lease> Find(ExpertKey key);
  // A block to read `key` into, leased; nothing when all are leased. ResourceExhausted when the
  // system has no memory. Found only once it is said to be Filled().
  absl::StatusOr<std::optional<Lease>> Take();
  void Filled(uint32_t block, ExpertKey key);
  void Release(uint32_t block);
  // Gives the memory of what is not leased back.
  void Shrink();
  uint64_t bytes() const;
  uint64_t bytes_max() const { return block_bytes_ * block_count_max_; }

 private:
  struct Block {
    std::optional<AnonymousMapping> memory;
    std::optional<ExpertKey> key;
    uint32_t lease_count = 0;
    uint64_t used = 0;  // when, by count of uses
  };
  const uint64_t block_bytes_;
  const uint32_t block_count_max_;
  std::vector<Block> blocks_;
  uint64_t use_count_ = 0;
};

}  // namespace hearth
