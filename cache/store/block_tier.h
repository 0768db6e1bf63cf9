// RamBlocks as it is made: one mutex over the block table, the queue of askers and the policies;
// one thread that owns the reader. What takes long (reads, checksums, copies, giving memory back)
// happens outside the mutex, to blocks that the table keeps from everybody else meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/store/ask_queue.h"
#include "cache/store/blob_reads.h"
#include "cache/store/block_table.h"
#include "cache/store/ram_blocks.h"

namespace hearth {

class BlockTier final : public RamBlocks {
 public:
  struct Parts {
    BlockLayout layout;
    std::span<std::byte> memory;
    std::unique_ptr<Reader> reader;
    std::vector<std::unique_ptr<ResidencyPolicy>> policies;  // by class
    std::vector<PoolShape> shapes;
    HeldElsewhere held_elsewhere;
  };
  // Of `block_count` blocks of a class, those that residents may have.
  static uint32_t SlotsOf(const BlockClass& cls, uint32_t block_count, uint64_t landing_count);

  BlockTier(const ExpertFile& file, Clock& clock, const RamBlocksOptions& options, Parts parts);
  ~BlockTier() override;

  BlockId Find(ExpertKey key) const override;
  BlockId Lease(ExpertKey key) override;
  void Release(BlockId block) override;
  std::span<std::byte> bytes(BlockId block) const override;
  ExpertKey key(BlockId block) const override;
  void Fetch(ExpertKey key, Arrival arrival) override;
  void LookAhead(ExpertKey key) override;
  absl::Status Fill(const std::function<void(uint64_t, uint64_t)>& progress) override;
  void StopFilling() override { filling_stopped_.store(true); }

  void Observe(const LayerTraffic& traffic) override;
  void EndWindow(uint32_t token_count) override;
  void Seed(LayerId layer, std::span<const float> sightings) override;
  float Heat(ExpertKey key) const override;
  void SetHeldInVram(ExpertKey key, bool held) override;
  void Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) override;
  void Lower(uint64_t memory_bytes) override;

  StoreStats stats() const override;
  std::vector<std::string> notes() const override;

  // For tests.
  bool resident(ExpertKey key) const;  // not only until its block is needed
  void CheckInvariants() const;

 private:
  struct Pool {  // of a class
    PoolShape shape;
    std::unique_ptr<ResidencyPolicy> policy;
    uint32_t gone_due_count = 0;  // blocks to be given back as soon as somebody lets go of them
  };
  // A read that has ended without an error, or not.
  struct Landing {
    BlockId block;
    ExpertKey key;
    absl::Status status;
  };

  uint32_t KeyIndex(ExpertKey key) const {
    return key.layer.value * file_.expert_count() + key.expert.value;
  }
  ExpertKey KeyAt(uint32_t index) const {
    return {LayerId(index / file_.expert_count()), ExpertId(index % file_.expert_count())};
  }
  bool Known(ExpertKey key) const {
    return key.layer.value < file_.layer_count() && key.expert.value < file_.expert_count();
  }
  Pool& PoolOf(LayerId layer) { return pools_[table_.ClassOf(layer)]; }

  // With the lock held, unless a comment says otherwise.
  // block_tier.cc
  void NoteUse(BlockId block);
  bool TakeWake();  // whether the I/O thread has to be woken, by the caller with Wake()
  void Wake();      // without the lock
  absl::Status ReadError(ExpertKey key, const absl::Status& status) const;
  void HandOut(ExpertKey key, BlockId block, std::vector<Arrival>& askers);
  struct FillState;
  void FinishFill(FillState& fill, const absl::StatusOr<BlockId>& block);  // without the lock
  std::vector<ExpertKey> FillOrder() const;

  // block_tier_residency.cc
  bool Admit(BlockId block);
  void RemoveResident(BlockId block, BlockTable::Reuse reuse);
  BlockId TakeBlock(uint32_t cls);
  bool InUse(BlockId block) const;
  BlockId ColdestUnused(uint32_t cls) const;
  void AdmitCandidates();
  void TrimResidents(Pool& pool);
  void TakeGone(std::vector<BlockId>& gone);
  void GiveBack(std::span<const BlockId> gone);  // without the lock

  // block_tier_io.cc: on the I/O thread, without the lock unless they say otherwise.
  void IoMain();
  void ReopenReader();
  int64_t StartReads();                         // with the lock; how long to wait for completions
  bool StartRead(ExpertKey key, bool unasked);  // with the lock
  void StartDemand();                           // with the lock
  void StartHints();                            // with the lock
  void FailLateAsks();
  void CollectEnded();
  void FinishLanding(const Landing& landing);
  absl::Status CheckLanding(const Landing& landing);
  void FailGivenUp(std::span<const BlobReads::GivenUp> given_up);
  void Close(const absl::Status& why);
  void Deliver(const absl::StatusOr<BlockId>& block);

  const ExpertFile& file_;
  Clock& clock_;
  const RamBlocksOptions options_;
  const std::span<std::byte> memory_;
  const HeldElsewhere held_elsewhere_;

  std::atomic<bool> filling_stopped_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<Reader>
      reader_;  // the I/O thread uses it without the lock, as it alone changes it
  BlockTable table_;
  AskQueue asks_;
  std::vector<Pool> pools_;            // by class
  std::vector<uint8_t> held_in_vram_;  // by key
  std::vector<uint64_t> last_pass_;    // by key: the number of the last pass that used it
  uint64_t pass_ = 1;                  // at hand
  struct Candidate {
    float heat = 0;
    BlockId block;
  };
  std::vector<Candidate> candidates_;    // spare blocks that the pass at hand has used, and more
  std::vector<uint8_t> in_candidates_;   // by block
  uint32_t demand_in_flight_count_ = 0;  // blobs that somebody has asked for
  uint64_t gone_due_count_ = 0;          // of all pools
  uint64_t memory_bytes_ = 0;            // the budget now
  StoreStats stats_;
  std::vector<std::string> notes_;
  absl::Status closed_;  // not ok: nothing is read any more, and why
  bool stopping_ = false;
  bool registered_ = false;   // the reader has registered memory with the kernel
  bool reopen_due_ = false;   // the reader keeps memory that is to be given back
  bool blocked_ = false;      // demand waits for a block
  bool wake_needed_ = false;  // the I/O thread waits, or is about to, and nobody has woken it

  // The I/O thread's own.
  BlobReads reads_;
  std::vector<uint8_t> checked_;  // by key: its bytes have had the right checksum once
  size_t reader_note_count_ = 0;  // of the reader's notes, those in notes_
  std::vector<Landing> landings_;
  std::vector<Arrival> deliveries_;

  std::thread io_thread_;  // last: uses all of the above
};

}  // namespace hearth
