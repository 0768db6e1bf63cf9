// Thousands of random calls against a plain model of who is where: no expert is in two slots, no
// slot has two experts, nobody who holds a slot loses it, and every slot is in one state.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cache/slots/slot_cache.h"
#include "runtime/base/prng.h"
#include "tests/cache/slots/slot_driver.h"

namespace hearth {
namespace {

class Model {
 public:
  explicit Model(uint64_t seed);
  void Step();
  void Check();
  void End();
  const SlotCacheStats& totals() const { return totals_; }

 private:
  struct Held {
    SlotLease lease;
    ExpertKey key;
    uint64_t generation;
  };
  struct Pending {
    Swap swap;
    std::optional<SlotRef> slot;
  };
  using Place = std::pair<uint32_t, uint32_t>;  // pool and slot
  static Place PlaceOf(SlotRef ref) { return {ref.pool, ref.slot.value}; }

  uint32_t Below(uint64_t bound) { return static_cast<uint32_t>(prng_.Below(bound)); }
  ExpertKey RandomKey() { return Key(Below(layers_), Below(experts_)); }
  void AcquireOne();
  void Observe();
  void BeginOne(const Swap& swap);
  void EndOne();
  void Upload();
  void Lower();
  void TakeTrimmed(uint32_t pool);

  Prng prng_;
  uint32_t layers_ = 0;
  uint32_t experts_ = 0;
  SlotCacheOptions options_;
  std::unique_ptr<SlotCache> cache_;
  std::vector<uint32_t> total_count_;      // of each pool, as made
  std::map<ExpertKey, SlotRef> resident_;  // the model's own table
  std::map<ExpertKey, SlotRef> uploads_;   // fills that will be discarded
  std::vector<Pending> pending_;           // swaps under way
  std::vector<Held> held_;
  SlotCacheStats totals_;
};

Model::Model(uint64_t seed) : prng_(seed) {
  layers_ = 1 + Below(4);
  experts_ = 4 + Below(12);
  options_ = SmallCache(layers_, experts_, Below(layers_ * experts_ + 2));
  for (uint64_t& bytes : options_.blob_bytes) bytes = 1000 + 1000 * prng_.Below(2);
  options_.policy = PolicyNames()[Below(PolicyNames().size())];
  options_.spare_count = Below(6);
  options_.swaps_per_layer_max = Below(5);
  if (Below(3) == 0) options_.swap_bytes_per_window_max = prng_.Below(10000);
  cache_ = MakeCache(options_);
  for (const SlotPoolShape& shape : cache_->pools()) total_count_.push_back(shape.total_count());
}

void Model::AcquireOne() {
  const ExpertKey key = RandomKey();
  SlotLease lease = cache_->Acquire(key);
  const auto at = resident_.find(key);
  ASSERT_EQ(lease.valid(), at != resident_.end());
  if (!lease.valid()) return;
  ASSERT_EQ(lease.ref(), at->second);
  if (held_.size() > 30) return;
  const uint64_t generation = cache_->generation(lease.ref());
  held_.push_back({std::move(lease), key, generation});
}

void Model::Observe() {
  std::set<uint32_t> chosen;
  const uint32_t count = Below(std::min(experts_, 6u));
  while (chosen.size() < count) chosen.insert(Below(experts_));
  const uint32_t layer = Below(layers_);
  ObserveLayer(*cache_, layer, {chosen.begin(), chosen.end()},
               Below(6) == 0 ? TrafficKind::kPrompt : TrafficKind::kWindow);
  const std::span<const Swap> proposed = cache_->Propose();
  const std::vector<Swap> swaps(proposed.begin(), proposed.end());
  ASSERT_LE(swaps.size(), options_.swaps_per_layer_max);
  const uint32_t pool = cache_->pool_of(LayerId(layer));
  ASSERT_LE(swaps.size(), cache_->counts(pool).free);
  ASSERT_LE(swaps.size() * options_.blob_bytes[layer], options_.swap_bytes_per_window_max);
  std::set<ExpertKey> victims;
  for (const Swap& swap : swaps) {
    ASSERT_EQ(swap.in.layer, LayerId(layer));
    ASSERT_EQ(chosen.count(swap.in.expert.value), 1u);
    ASSERT_EQ(resident_.count(swap.in), 0u);
    if (swap.out.layer.valid()) {
      ASSERT_EQ(resident_.count(swap.out), 1u);
      ASSERT_TRUE(victims.insert(swap.out).second);
      ASSERT_FALSE(swap.out.layer == swap.in.layer && chosen.count(swap.out.expert.value) != 0);
      for (const Pending& p : pending_) ASSERT_FALSE(p.swap.out == swap.out);
    }
    for (const Pending& p : pending_) ASSERT_FALSE(p.swap.in == swap.in);
  }
  for (const Swap& swap : swaps) {
    if (Below(4) != 0) BeginOne(swap);
  }
}

void Model::BeginOne(const Swap& swap) {
  if (uploads_.count(swap.in) != 0 && Below(2) == 0) {  // what was uploaded is kept
    cache_->BeginSwap(swap);
    pending_.push_back({swap, uploads_[swap.in]});
    uploads_.erase(swap.in);
    return;
  }
  cache_->BeginSwap(swap);
  const absl::StatusOr<SlotRef> slot = cache_->BeginFill(swap.in);
  if (!slot.ok()) {
    ASSERT_EQ(slot.status().code(), uploads_.count(swap.in) != 0
                                        ? absl::StatusCode::kAlreadyExists
                                        : absl::StatusCode::kResourceExhausted);
    cache_->CancelSwap(swap);
    TakeTrimmed(cache_->pool_of(swap.in.layer));
    return;
  }
  pending_.push_back({swap, *slot});
}

void Model::EndOne() {
  if (pending_.empty()) return;
  const size_t i = Below(pending_.size());
  const Pending ended = pending_[i];
  pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
  if (Below(3) != 0) {
    if (ended.swap.out.layer.valid()) resident_.erase(ended.swap.out);
    resident_[ended.swap.in] = *ended.slot;
    cache_->Land(*ended.slot, ended.swap);
    ++totals_.swap_count;
    totals_.swap_bytes += options_.blob_bytes[ended.swap.in.layer.value];
  } else if (Below(2) == 0) {
    cache_->CancelSwap(ended.swap);
    cache_->Discard(*ended.slot);
  } else {
    cache_->Discard(*ended.slot);
    cache_->CancelSwap(ended.swap);
  }
  TakeTrimmed(cache_->pool_of(ended.swap.in.layer));
}

void Model::Upload() {
  const ExpertKey key = RandomKey();
  if (resident_.count(key) != 0) return;
  bool is_on_its_way = uploads_.count(key) != 0;
  for (const Pending& p : pending_) is_on_its_way = is_on_its_way || p.swap.in == key;
  const absl::StatusOr<SlotRef> slot = cache_->BeginFill(key);
  if (is_on_its_way) {
    ASSERT_EQ(slot.status().code(), absl::StatusCode::kAlreadyExists);
  } else if (slot.ok()) {
    uploads_[key] = *slot;
  } else {
    ASSERT_EQ(slot.status().code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(cache_->counts(cache_->pool_of(key.layer)).free, 0u);
  }
}

// A pool that holds more than it may gives some up, and never more than the excess.
void Model::TakeTrimmed(uint32_t pool) {
  uint32_t before = 0;
  std::vector<ExpertKey> gone;
  for (const auto& [key, ref] : resident_) {
    if (ref.pool != pool) continue;
    ++before;
    if (!cache_->resident(key)) gone.push_back(key);
  }
  const uint32_t slots = cache_->pools()[pool].slot_count;
  ASSERT_LE(gone.size(), before - std::min(before, slots));
  for (const ExpertKey key : gone) {
    for (const Pending& p : pending_) ASSERT_FALSE(p.swap.out == key);
    resident_.erase(key);
  }
}

void Model::Lower() {
  const uint32_t pool = Below(total_count_.size());
  const uint32_t slots = cache_->pools()[pool].slot_count;
  const uint32_t lowered = slots - Below(std::min(slots + 1, 4u));
  cache_->Lower(pool, Below(4) == 0 ? slots + 5 : lowered);
  ASSERT_LE(cache_->pools()[pool].slot_count, slots);
  TakeTrimmed(pool);
}

void Model::Step() {
  const uint32_t what = Below(100);
  if (what < 25) return AcquireOne();
  if (what < 45) {
    if (held_.empty()) return;
    const size_t i = Below(held_.size());
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
  } else if (what < 65) {
    Observe();
  } else if (what < 80) {
    EndOne();
  } else if (what < 86) {
    Upload();
  } else if (what < 90) {
    if (uploads_.empty()) return;
    cache_->Discard(uploads_.begin()->second);
    uploads_.erase(uploads_.begin());
  } else if (what < 97) {
    cache_->EndWindow(Below(300));
    for (uint32_t p = 0; p < total_count_.size(); ++p) TakeTrimmed(p);
  } else if (what < 98) {
    Lower();
  } else if (what < 99) {
    cache_->Seed(LayerId(Below(layers_)), std::vector<float>(experts_, 0.5f));
  } else {
    std::vector<Swap> swaps(Below(5));
    swaps.resize(cache_->ProposeFill(swaps));
    for (const Swap& swap : swaps) BeginOne(swap);
  }
}

void Model::Check() {
  std::set<Place> used;
  std::vector<SlotCounts> expected(total_count_.size());
  std::vector<uint32_t> outgoing(total_count_.size());
  for (const auto& [key, ref] : resident_) {
    ASSERT_TRUE(used.insert(PlaceOf(ref)).second) << "two experts in a slot";
    ASSERT_TRUE(cache_->resident(key));
    ASSERT_EQ(cache_->state(ref), SlotState::kResident);
    ++expected[ref.pool].resident;
  }
  for (const Pending& p : pending_) {
    ASSERT_TRUE(used.insert(PlaceOf(*p.slot)).second);
    ASSERT_FALSE(cache_->resident(p.swap.in));
    ++expected[p.slot->pool].filling;
    outgoing[p.slot->pool] += p.swap.out.layer.valid() ? 1 : 0;
  }
  for (const auto& [key, ref] : uploads_) {
    ASSERT_TRUE(used.insert(PlaceOf(ref)).second);
    ASSERT_FALSE(cache_->resident(key));
    ++expected[ref.pool].filling;
  }
  std::set<Place> leaving;
  for (const Held& held : held_) {
    ASSERT_EQ(cache_->generation(held.lease.ref()), held.generation) << "a held slot was filled";
    const auto at = resident_.find(held.key);
    if (at != resident_.end() && at->second == held.lease.ref()) continue;
    ASSERT_EQ(cache_->state(held.lease.ref()), SlotState::kLeaving);
    ASSERT_EQ(used.count(PlaceOf(held.lease.ref())), 0u);
    leaving.insert(PlaceOf(held.lease.ref()));
  }
  uint32_t resident_count = 0;
  for (uint32_t p = 0; p < total_count_.size(); ++p) {
    const SlotCounts counts = cache_->counts(p);
    ASSERT_EQ(counts.resident, expected[p].resident);
    ASSERT_EQ(counts.filling, expected[p].filling);
    ASSERT_EQ(counts.free + counts.filling + counts.resident + counts.leaving + counts.retired,
              total_count_[p]);
    ASSERT_LE(counts.retired, total_count_[p] - cache_->pools()[p].total_count());
    uint32_t held_leaving = 0;
    for (const Place& place : leaving) held_leaving += place.first == p ? 1 : 0;
    ASSERT_GE(counts.leaving, held_leaving);  // others go with the next Reclaim()
    resident_count += counts.resident;
  }
  ASSERT_EQ(cache_->stats().resident_count, resident_count);
  ASSERT_EQ(cache_->stats().swap_count, totals_.swap_count);
  ASSERT_EQ(cache_->stats().swap_bytes, totals_.swap_bytes);
}

// When all has ended and nobody holds anything, each pool is what its shape says.
void Model::End() {
  while (!pending_.empty()) {
    EndOne();
    if (testing::Test::HasFatalFailure()) return;
  }
  for (const auto& [key, ref] : uploads_) cache_->Discard(ref);
  uploads_.clear();
  held_.clear();
  cache_->EndWindow(1);
  for (uint32_t p = 0; p < total_count_.size(); ++p) {
    TakeTrimmed(p);
    const SlotPoolShape& shape = cache_->pools()[p];
    const SlotCounts counts = cache_->counts(p);
    ASSERT_LE(counts.resident, shape.slot_count);
    ASSERT_EQ(counts.resident + counts.free, shape.total_count());
    ASSERT_EQ(counts.retired, total_count_[p] - shape.total_count());
  }
  Check();
}

TEST(SlotCacheModel, RandomCallsLeaveCacheAndModelInStep) {
  uint64_t swaps = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Model model(seed);
    for (int i = 0; i < 400; ++i) {
      SCOPED_TRACE(testing::Message() << "step " << i);
      model.Step();
      if (!testing::Test::HasFatalFailure()) model.Check();
      if (testing::Test::HasFatalFailure()) return;
    }
    model.End();
    if (testing::Test::HasFatalFailure()) return;
    swaps += model.totals().swap_count;
  }
  EXPECT_GT(swaps, 3000u);
}

}  // namespace
}  // namespace hearth
