// The residency table of a card: which expert is in which slot, which swaps are under way, and who
// holds a slot. Bookkeeping only: bytes are moved by whoever carries the swaps out, so the same
// code serves a GPU and the host memory that plays one. One pool of equal slots for each
// quantisation class; any layer of the class may own any slot of it. Besides its slots a pool has
// spare ones, into which new experts are copied before their victims go.
//
// The life of a swap: Propose() -> BeginSwap() and BeginFill() (takes a spare) -> copy -> Land()
// (the victim's slot becomes a spare once nobody holds it), or Discard() and CancelSwap(). Used by
// one thread; leases may be dropped from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/policy/residency_policy.h"
#include "cache/policy/traffic.h"
#include "cache/slots/slot_budget.h"
#include "cache/slots/slot_table.h"
#include "runtime/base/ids.h"

namespace hearth {

struct SlotCacheOptions {
  // Of each layer's experts: layers of equal bytes share a pool.
  std::vector<uint64_t> blob_bytes = {};
  uint32_t expert_count = 0;  // per layer
  SlotBudget budget = {};
  std::string policy{kDefaultPolicy};
  // In place of `policy`: makes the policy of a pool that has slots.
  std::function<absl::StatusOr<std::unique_ptr<ResidencyPolicy>>(const PoolShape&)> make_policy =
      nullptr;
  uint32_t swaps_per_layer_max = 2;
  uint64_t swap_bytes_per_window_max = UINT64_MAX;
  uint32_t spare_count = 32;  // of a pool, at most: swaps of one window and uploads of one layer
};

// Which slot of which pool; slots of a pool are numbered from 0, spares included.
struct SlotRef {
  uint32_t pool = 0;
  SlotId slot;  // invalid: none
  bool valid() const { return slot.valid(); }
  bool operator==(const SlotRef&) const = default;
};

struct SlotCacheStats {
  uint64_t swap_count = 0;  // landed
  uint64_t swap_bytes = 0;  // of their blobs
  uint64_t cancelled_count = 0;
  uint32_t resident_count = 0;
  bool pinned = false;  // a pool is too small for its windows and keeps its hottest experts
};

// One swap that landed, for a log.
struct LandedSwap {
  ExpertKey in = ExpertKey();
  ExpertKey out = ExpertKey();  // out.layer invalid: the slot was free
  float in_heat = 0;            // when it landed
  float out_heat = 0;
  uint64_t window = 0;  // passes that had ended before
};
inline constexpr uint32_t kSwapLogCount = 64;

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

// Learns what changes hands, from within the calls that change it.
class ResidencySink {
 public:
  virtual ~ResidencySink() = default;
  virtual void OnResident(ExpertKey key, SlotRef slot) = 0;
  // Still resident: a lease that is taken here keeps the slot's bytes in place beyond the eviction.
  virtual void OnEviction(ExpertKey key) = 0;
};

// Outlives its leases. What a window calls allocates nothing.
class SlotCache {
 public:
  // Shares the budget out between the pools in proportion to their experts. InvalidArgument for a
  // budget that is not one, ResourceExhausted for bytes that hold no slot and its spares: both say
  // what would do. NotFound for a policy that there is not.
  static absl::StatusOr<std::unique_ptr<SlotCache>> Create(const SlotCacheOptions& options);
  ~SlotCache();

  std::span<const SlotPoolShape> pools() const { return shapes_; }  // as lowered
  uint64_t bytes() const;                                           // of all slots
  uint32_t pool_of(LayerId layer) const;

  void set_sink(ResidencySink* sink) { sink_ = sink; }  // null: none

  // The slot that holds `key`, ready to be read, and keeps it there; not valid() when none does.
  SlotLease Acquire(ExpertKey key);
  bool resident(ExpertKey key) const;
  float Heat(ExpertKey key) const;  // 0 for a pool without slots

  void Observe(const LayerTraffic& traffic);
  // The swaps worth making for the layer last observed, hottest first; within the bounds of a layer
  // and of what the window has left, and no more than there are free slots to fill. Good until the
  // next call.
  std::span<const Swap> Propose();
  void EndWindow(uint32_t token_count);
  void Seed(LayerId layer, std::span<const float> sightings);

  // A spare slot for the bytes of `key`, which is not resident: to be kept (Land) or only read in
  // this layer (Discard). ResourceExhausted when no spare is free, AlreadyExists when `key` is on
  // its way into one: do without.
  absl::StatusOr<SlotRef> BeginFill(ExpertKey key);
  // The bytes are there. `swap`, which has begun, is over: `swap.in` is resident from now on,
  // `swap.out` is not.
  void Land(SlotRef slot, const Swap& swap);
  void Discard(SlotRef slot);
  // Tells the policy that a proposed swap is under way; Land() or CancelSwap() end that.
  void BeginSwap(const Swap& swap);
  void CancelSwap(const Swap& swap);

  // The hottest experts for which there are free slots, for filling before the first window and
  // after a prompt: as swaps without a victim. A layer below its minimum comes first; those of
  // equal heat come from all layers alike, and those without any (a cold start) last. Allocates.
  size_t ProposeFill(std::span<Swap> out) const;
  // Fewer slots from now on (a lowered budget stays lowered): evicts the coldest. Those that the
  // pass at hand uses go at its end; those that are held, when nobody holds them any more.
  void Lower(uint32_t pool, uint32_t slot_count);

  // How often the slot has been given a new expert: a reader that sees it change has read garbage.
  // From any thread.
  uint64_t generation(SlotRef slot) const;
  // By what each slot of the pool is at the moment; a retired one is not used any more.
  SlotCounts counts(uint32_t pool) const;
  SlotState state(SlotRef slot) const;
  SlotCacheStats stats() const;
  // The last swaps that landed, newest first, kSwapLogCount at most: how many `out` was given.
  size_t RecentSwaps(std::span<LandedSwap> out) const;
  // What a user should know: a pool that pins its experts, a budget that was rounded.
  std::vector<std::string> notes() const;

 private:
  friend class SlotLease;
  struct Pool;
  struct Candidate {
    ExpertKey key;
    float heat = 0;
    bool is_lacking = false;  // its layer is below the minimum
  };
  SlotCache(const SlotCacheOptions& options, SlotPlan plan);
  absl::Status MakePools();
  Pool& PoolOf(LayerId layer) const { return *pools_[pool_of(layer)]; }
  void Release(SlotRef ref);
  void Evict(Pool& pool, ExpertKey key);
  void LogSwap(const Pool& pool, const Swap& swap);
  bool Allows(const Pool& pool, const Swap& swap, uint32_t growth_count) const;
  void Trim(uint32_t pool);
  std::vector<Candidate> FillCandidates(const Pool& pool) const;

  const SlotCacheOptions options_;
  const absl::Status no_spare_;  // made once: an error's text is allocated
  const absl::Status on_its_way_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<SlotPoolShape> shapes_;
  std::vector<uint32_t> pool_of_layer_;
  std::vector<std::string> plan_notes_;
  std::vector<Swap> proposals_;
  ResidencySink* sink_ = nullptr;

  bool in_window_ = false;          // something was observed since the last pass ended
  LayerId observed_;                // last, in this window
  size_t layer_swap_count_ = 0;     // begun for it since
  uint64_t window_swap_bytes_ = 0;  // of swaps begun in the window at hand
  uint64_t swap_count_ = 0;
  uint64_t swap_bytes_ = 0;
  uint64_t cancelled_count_ = 0;
  uint64_t window_count_ = 0;                  // that have ended
  std::array<LandedSwap, kSwapLogCount> log_;  // a ring: swap i is at i % kSwapLogCount
};

inline SlotLease::~SlotLease() {
  if (cache_ != nullptr) cache_->Release(ref_);
}

}  // namespace hearth
