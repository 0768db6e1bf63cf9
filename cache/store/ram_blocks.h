// A RAM tier smaller than the experts: a given piece of memory cut into equal blocks per
// quantisation class, a policy that says which experts it holds, and an I/O thread that reads the
// others as they are asked for. Used in process (BudgetStore) and by the daemon, which hands the
// same memory to several engines.
//
// Landing: every read goes into a block that no resident has. When the pass is over the policy
// decides which of the newcomers stay and which of the colder residents give their blocks back;
// what has to go is still found until its block is needed, the oldest first. A block whose expert
// is leased is never given away. When all blocks are in use a read waits for one; that wait is
// bounded as the read itself is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/io/reader.h"
#include "cache/policy/residency_policy.h"
#include "cache/store/expert_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/clock.h"

namespace hearth {

// A block of the arena, numbered from 0 over all classes.
using BlockId = Id<struct BlockTag>;

struct RamBlocksOptions {
  // Blocks of a class that no resident has, for reads; 0: an eighth of them, 2 to 96.
  uint64_t landing_count = 0;
  std::string policy{kDefaultPolicy};
  uint32_t blob_requests = 2;                // reads that one blob is split into, 1 to 4
  uint32_t blobs_in_flight_max = 8;          // 1 to 64
  int64_t read_timeout_ns = 30'000'000'000;  // a drive that does not answer is an error
  bool check_first_read = true;              // CRC32C of each expert the first time it is read
  // Opens another reader of the same file that has registered no memory, called on the I/O thread
  // once memory was lowered: what a reader has registered is not given back before it is closed.
  std::function<absl::StatusOr<std::unique_ptr<Reader>>()> reopen;
  // For tests: called with the bytes of a block that is about to be given to another expert.
  std::function<void(std::span<std::byte>)> testing_on_take;
};

class RamBlocks {
 public:
  // Whether somebody outside holds a block: the daemon's engines. Called with the lock held.
  using HeldElsewhere = std::function<bool(BlockId)>;
  // Called once, on the I/O thread when a read has ended, or by the call that brought the bytes
  // (Fetch() itself when they were there, Exchange()); the block is leased once to the receiver,
  // who gives it back with Release(). Must not wait for another read. An error names path, layer,
  // expert and offset.
  using Arrival = std::function<void(absl::StatusOr<BlockId>)>;

  // `memory` is cut up: 4 KiB-aligned, and outlives the tier, as do `file` and `clock`. The reader
  // must be for `file`. ResourceExhausted says how much memory the least useful tier takes.
  // No allocation per window after Create, but by an Arrival of more than two words.
  static absl::StatusOr<std::unique_ptr<RamBlocks>> Create(
      const ExpertFile& file, std::span<std::byte> memory, std::unique_ptr<Reader> reader,
      Clock& clock, const RamBlocksOptions& options, HeldElsewhere held_elsewhere);
  virtual ~RamBlocks() = default;

  // All thread-safe.
  virtual BlockId Find(ExpertKey key) const = 0;  // invalid when not in RAM
  virtual BlockId Lease(ExpertKey key) = 0;       // the same, and holds it
  virtual void Release(BlockId block) = 0;
  virtual std::span<std::byte> bytes(BlockId block) const = 0;
  virtual ExpertKey key(BlockId block) const = 0;
  // Reads `key`, or joins a read of it that is under way, or hands out what is there already.
  virtual void Fetch(ExpertKey key, Arrival arrival) = 0;
  virtual void LookAhead(ExpertKey key) = 0;  // read when the drive is idle, or not at all
  // The hottest experts for which there is room, read now; progress as WholeArena::Progress.
  virtual absl::Status Fill(const std::function<void(uint64_t, uint64_t)>& progress) = 0;
  // A Fill() under way on another thread ends soon, with Cancelled, and later ones at once.
  virtual void StopFilling() = 0;

  virtual void Observe(const LayerTraffic& traffic) = 0;
  virtual void EndWindow(uint32_t token_count) = 0;
  virtual void Seed(LayerId layer, std::span<const float> sightings) = 0;
  virtual float Heat(ExpertKey key) const = 0;
  // VRAM holds `key` (some engine's): RAM need not, until it is not any more.
  virtual void SetHeldInVram(ExpertKey key, bool held) = 0;
  virtual void Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) = 0;
  // Less memory from now on, never more again; what is beyond it is given back to the system when
  // nobody holds it.
  virtual void Lower(uint64_t memory_bytes) = 0;

  virtual StoreStats stats() const = 0;
  virtual std::vector<std::string> notes() const = 0;
};

}  // namespace hearth
