// The residency table of a card: which expert is in which slot, which swaps are under way, and who
// holds a slot. Bookkeeping only: bytes are moved by whoever carries the swaps out, so the same
// code serves a GPU and the host memory that plays one. One pool of equal slots for each
// quantisation class; any layer of the class may own any slot of it. Besides its slots a pool has
// spare ones, into which new experts are copied before their victims go.
//
// The life of a swap: Propose() -> BeginFill() (takes a spare) -> copy -> Land() (the victim's slot
// becomes a spare once nobody holds it) or Discard(). Used by one thread; leases may be dropped
// from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/policy/residency_policy.h"
#include "cache/policy/traffic.h"
#include "runtime/base/ids.h"

namespace hearth {

// How large the card's cache is: exactly one of the three is not zero, or all are (no slots).
struct SlotBudget {
  uint64_t bytes = 0;       // of all pools with their spares
  uint64_t slot_count = 0;  // of all pools, spares not counted
  double share = 0;         // of all experts, (0, 1]
};

struct SlotCacheOptions {
  std::vector<uint64_t> blob_bytes;  // of each layer's experts: layers of equal bytes share a pool
  uint32_t expert_count = 0;         // per layer
  SlotBudget budget;
  std::string policy = "two-scale";
  uint32_t swaps_per_layer_max = 2;
  uint64_t swap_bytes_per_window_max = UINT64_MAX;
  uint32_t spare_count = 8;  // of a pool: swaps under way and uploads of one layer
};

// Which slot of which pool; slots of a pool are numbered from 0, spares included.
struct SlotRef {
  uint32_t pool = 0;
  SlotId slot;  // invalid: none
  bool valid() const { return slot.valid(); }
};

struct SlotPoolShape {
  uint64_t slot_bytes = 0;
  uint32_t slot_count = 0;   // experts held at most
  uint32_t spare_count = 0;  // 0 when slot_count is
  std::vector<LayerId> layers;
  uint32_t total_count() const { return slot_count + spare_count; }
};

struct SlotCacheStats {
  uint64_t swap_count = 0;  // landed
  uint64_t swap_bytes = 0;
  uint64_t cancelled_count = 0;
  uint32_t resident_count = 0;
  bool pinned = false;  // a pool is too small for its windows and keeps its hottest experts
};

class SlotCache;

// Keeps a slot's bytes in place. As ExpertLease.
class SlotLease {
 public:
  SlotLease() = default;
  SlotLease(SlotLease&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)), ref_(other.ref_) {}
  SlotLease& operator=(SlotLease&& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(ref_, other.ref_);
    return *this;
  }
  ~SlotLease();
  SlotRef ref() const { return ref_; }
  bool valid() const { return cache_ != nullptr; }

 private:
  friend class SlotCache;
  SlotLease(SlotCache* cache, SlotRef ref) : cache_(cache), ref_(ref) {}
  SlotCache* cache_ = nullptr;
  SlotRef ref_;
};

class SlotCache {
 public:
  // Shares the budget out between the pools in proportion to their experts. InvalidArgument for a
  // budget that is not one, ResourceExhausted for bytes that hold no slot and its spares: both say
  // what would do.
  static absl::StatusOr<std::unique_ptr<SlotCache>> Create(const SlotCacheOptions& options);
  ~SlotCache();

  std::span<const SlotPoolShape> pools() const;
  uint64_t bytes() const;  // of all slots

  // The slot that holds `key`, ready to be read, and keeps it there; not valid() when none does.
  SlotLease Acquire(ExpertKey key);
  bool resident(ExpertKey key) const;
  float Heat(ExpertKey key) const;

  void Observe(const LayerTraffic& traffic);
  // The swaps worth making for the layer last observed, hottest first; within the bounds of a layer
  // and of what the window has left. Good until the next call.
  std::span<const Swap> Propose();
  void EndWindow(uint32_t token_count);
  void Seed(LayerId layer, std::span<const float> sightings);

  // A spare slot for the bytes of `key`, which is not resident: to be kept (Land) or only read in
  // this layer (Discard). ResourceExhausted when no spare is free: do without.
  absl::StatusOr<SlotRef> BeginFill(ExpertKey key);
  // The bytes are there. `swap.in` is resident from now on, `swap.out` is not.
  void Land(SlotRef slot, const Swap& swap);
  void Discard(SlotRef slot);
  // Tells the policy that a proposed swap is under way; Land() or CancelSwap() end that.
  void BeginSwap(const Swap& swap);
  void CancelSwap(const Swap& swap);

  // The hottest experts for which there are free slots, for filling before the first window and
  // after a prompt: as swaps without a victim.
  size_t ProposeFill(std::span<Swap> out) const;
  // Fewer slots from now on (a lowered budget stays lowered): evicts the coldest.
  void Lower(uint32_t pool, uint32_t slot_count);

  // How often the slot has been given a new expert: a reader that sees it change has read garbage.
  uint64_t generation(SlotRef slot) const;
  SlotCacheStats stats() const;
  // What a user should know: a pool that pins its experts, a budget that was rounded.
  std::vector<std::string> notes() const;

 private:
  friend class SlotLease;
  struct Pool;
  explicit SlotCache(const SlotCacheOptions& options);
  void Release(SlotRef ref);

  SlotCacheOptions options_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<SlotPoolShape> shapes_;
  std::vector<uint32_t> pool_of_layer_;
};

inline SlotLease::~SlotLease() {
  if (cache_ != nullptr) cache_->Release(ref_);
}

}  // namespace hearth
