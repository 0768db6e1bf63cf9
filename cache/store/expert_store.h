// The RAM tier: hands out the bytes of experts under leases. One interface whatever fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/policy/traffic.h"
#include "pack/format/expert_layout.h"
#include "runtime/base/ids.h"

namespace hearth {

class ExpertStore;

// Keeps one expert's blob in place; letting it go out of scope is the only way to give it back.
class ExpertLease {
 public:
  ExpertLease() = default;
  ExpertLease(ExpertLease&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)),
        ticket_(other.ticket_),
        bytes_(other.bytes_) {}
  ExpertLease& operator=(ExpertLease&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(ticket_, other.ticket_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ExpertLease();

  std::span<const std::byte> bytes() const { return bytes_; }  // valid while the lease lives

 private:
  friend class ExpertStore;
  ExpertLease(ExpertStore* store, uint64_t ticket, std::span<const std::byte> bytes)
      : store_(store), ticket_(ticket), bytes_(bytes) {}
  ExpertStore* store_ = nullptr;
  uint64_t ticket_ = 0;
  std::span<const std::byte> bytes_;
};

// Where experts arrive that had to be read first.
class ArrivalSink {
 public:
  virtual ~ArrivalSink() = default;
  // Once for each index given to Fetch(), in any order, from any thread, possibly before Fetch()
  // returns. An error names path, layer and expert.
  virtual void OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) = 0;
};

// Memory in which blobs lie, for whoever wants to pin it for a card.
struct StoreMemory {
  std::span<const std::byte> bytes;  // begins on a 4 KiB page
  bool writable = true;              // by this process
  // Keeps it mapped; null: the store does, as long as it lives.
  std::shared_ptr<const void> keep_mapped = nullptr;
};

// Running totals of a RAM tier. Bytes count blobs with their padding, as read.
struct StoreStats {
  uint64_t capacity_bytes = 0;  // of RAM for experts, landing blocks included
  uint64_t resident_count = 0;  // experts in RAM now
  uint64_t read_count = 0;      // experts read since the store was made, the first fill included
  uint64_t read_bytes = 0;
  uint64_t lookahead_read_count = 0;  // of read_count: by router lookahead
  uint64_t lookahead_used_count = 0;  // of those: asked for while still there
  uint64_t exchange_count = 0;        // blocks whose bytes came back from VRAM
  uint64_t major_fault_count = 0;     // mapped tier: page faults that had to read
  int64_t read_busy_ns = 0;           // time with at least one read in flight
};

// Thread-safe unless a function says otherwise. Outlives its leases.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual uint32_t layer_count() const = 0;
  virtual uint32_t expert_count() const = 0;  // per layer
  virtual const ExpertLayout& layout(LayerId layer) const = 0;
  // The memory node, counted from 0, that is closest to the blob of `key`.
  virtual uint32_t NodeOf(ExpertKey) const { return 0; }
  // The blob of `key`, layout(key.layer).blob_bytes() long, 64-byte aligned.
  // Reads it first where it has to, and waits for that.
  virtual absl::StatusOr<ExpertLease> Acquire(ExpertKey key) = 0;

  // The blob where it is in RAM already, else nothing: never reads, never waits.
  virtual std::optional<ExpertLease> TryAcquire(ExpertKey key) {
    absl::StatusOr<ExpertLease> lease = Acquire(key);
    if (!lease.ok()) return std::nullopt;
    return *std::move(lease);
  }
  // Starts reading experts of a layer (at most expert_count() of them, distinct) and returns; each
  // goes to `sink`, which lives until all have arrived. An expert that is being read already is
  // read once. Every read ends: a drive that does not answer is an error after a bounded time.
  virtual void Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) {
    for (uint32_t i = 0; i < experts.size(); ++i) sink.OnArrival(i, Acquire({layer, experts[i]}));
  }
  // These may be asked for soon: they are read while the drive has nothing else to do, or not.
  virtual void LookAhead(LayerId, std::span<const ExpertId>) {}

  // What the passes use and how far time went: what RAM should hold. From one thread.
  virtual void Observe(const LayerTraffic&) {}
  virtual void EndWindow(uint32_t /*token_count*/) {}
  // Sightings of a layer's experts, (expert_count()), from a profile or saved state.
  virtual void Seed(LayerId, std::span<const float> /*sightings*/) {}
  // Whether Exchange() can use the victims' bytes; otherwise it is given none.
  virtual bool takes_exchange() const { return false; }
  // VRAM now holds `in` and has given `out` up (invalid layer: nothing), whose bytes are
  // `out_bytes` (the blob, valid during the call): RAM that need not hold `in` any more may take
  // `out` instead.
  virtual void Exchange(ExpertKey /*in*/, ExpertKey /*out*/,
                        std::span<const std::byte> /*out_bytes*/) {}

  // Whether every blob is in memory and stays where it is as long as the store lives.
  virtual bool keeps_in_place() const { return false; }
  // What can be pinned; blobs may lie elsewhere, too. Empty where pinning would take more memory
  // than the tier may have.
  virtual std::vector<StoreMemory> memory() const { return {}; }
  virtual StoreStats stats() const { return {}; }
  // One line for each fallback or warning, with the remedy; may grow over time.
  virtual std::vector<std::string> notes() const { return {}; }

 protected:
  ExpertLease MakeLease(uint64_t ticket, std::span<const std::byte> bytes) {
    return ExpertLease(this, ticket, bytes);
  }

 private:
  friend class ExpertLease;
  virtual void Release(uint64_t ticket) = 0;
};

inline ExpertLease::~ExpertLease() {
  if (store_ != nullptr) store_->Release(ticket_);
}

}  // namespace hearth
