// The daemon's half of the shared memory: shows engines where experts lie, and knows from their
// hazard pages which blocks they hold.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/protocol/hazard_page.h"
#include "cache/protocol/resident_directory.h"
#include "cache/protocol/shared_memory.h"
#include "cache/store/ram_blocks.h"
#include "runtime/base/ids.h"

namespace hearth {

// Thread-safe. Its lock is a leaf: RamBlocks asks HeldElsewhere() with its own lock held.
class SharedLeases {
 public:
  // `arena` is where the blocks lie.
  static absl::StatusOr<std::unique_ptr<SharedLeases>> Create(ResidentDirectory::Shape shape,
                                                              std::span<const std::byte> arena);

  // Shows engines that `key` lies in `block`, whose bytes are `bytes`; where that is. The caller
  // holds a lease of the block, so that it cannot change hands meanwhile.
  ArenaPlace Publish(BlockId block, ExpertKey key, std::span<const std::byte> bytes);
  // Whether any engine holds the block. If none does it is out of the directory from now on, so
  // that none will.
  bool HeldElsewhere(BlockId block);

  // The page counts until it is removed. Not copied: it must live so long.
  void AddPage(const HazardPage& page);
  void RemovePage(const HazardPage& page);
  const SharedMemory& directory_memory() const { return memory_; }

 private:
  struct Shown {  // what the directory says of a block
    ExpertKey key;
    ArenaPlace place;
  };
  SharedLeases(SharedMemory memory, ResidentDirectory::Shape shape,
               std::span<const std::byte> arena);
  bool AnyHolds(uint32_t page) const;

  SharedMemory memory_;
  const ResidentDirectory::Shape shape_;
  const std::span<const std::byte> arena_;
  std::mutex mutex_;  // guards what follows
  ResidentDirectory directory_;
  std::vector<Shown> shown_;           // by block; an invalid place: not shown
  std::vector<uint32_t> generations_;  // by expert
  std::vector<const HazardPage*> pages_;
};

}  // namespace hearth
