#include "cache/slots/slot_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cache/slots/pin_guard.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// A layer keeps at least so many of its experts, and never more than a quarter of what an even
// split would give it: about the experts of one token, so that no layer starves.
constexpr uint32_t kLayerSlotsMin = 8;
constexpr uint32_t kLayerSlotsDivisor = 4;

enum SwapFlag : uint8_t { kIncoming = 1, kOutgoing = 2 };  // of a swap that has begun

uint32_t LayerSlotsMin(const SlotPoolShape& shape) {
  const auto layers = static_cast<uint32_t>(shape.layers.size());
  return std::min(kLayerSlotsMin, shape.slot_count / layers / kLayerSlotsDivisor);
}

}  // namespace

struct SlotCache::Pool {
  Pool(const SlotPoolShape& shape, uint64_t blob, uint32_t layer_count, uint32_t experts_per_layer)
      : blob_bytes(blob),
        expert_count(experts_per_layer),
        expert_total(static_cast<uint32_t>(shape.layers.size() * experts_per_layer)),
        layers(shape.layers),
        layer_slots_min(LayerSlotsMin(shape)),
        slot_count(shape.slot_count),
        table(shape.layers, layer_count, experts_per_layer, shape.total_count()),
        guard(static_cast<uint32_t>(shape.layers.size()), expert_total),
        flags(size_t{layer_count} * experts_per_layer) {}

  uint8_t& FlagsOf(ExpertKey key) {
    return flags[size_t{key.layer.value} * expert_count + key.expert.value];
  }
  uint8_t FlagsOf(ExpertKey key) const {
    return flags[size_t{key.layer.value} * expert_count + key.expert.value];
  }
  // Residents when all swaps under way have landed.
  uint32_t expected_count() const { return table.counts().resident + growth_count; }

  const uint64_t blob_bytes;
  const uint32_t expert_count;  // per layer
  const uint32_t expert_total;
  const std::vector<LayerId> layers;
  const uint32_t layer_slots_min;
  uint32_t slot_count;
  SlotTable table;
  PinGuard guard;
  std::unique_ptr<ResidencyPolicy> policy;  // null in a pool that never had slots
  std::vector<uint8_t> flags;               // SwapFlag, by layer of the model and expert
  uint32_t growth_count = 0;                // swaps under way without a victim
};

SlotCache::SlotCache(const SlotCacheOptions& options, SlotPlan plan)
    : options_(options),
      no_spare_(absl::ResourceExhaustedError("slot cache: no spare slot is free")),
      on_its_way_(absl::AlreadyExistsError("slot cache: the expert is on its way into a slot")),
      shapes_(std::move(plan.pools)),
      pool_of_layer_(options.blob_bytes.size()),
      plan_notes_(std::move(plan.notes)),
      proposals_(std::min(options.swaps_per_layer_max, options.expert_count)) {}

SlotCache::~SlotCache() {
  for (const auto& pool : pools_) HEARTH_CHECK(pool->table.hold_count() == 0);
}

absl::StatusOr<std::unique_ptr<SlotCache>> SlotCache::Create(const SlotCacheOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(SlotPlan plan,
                          ShareSlots(options.budget, {.blob_bytes = options.blob_bytes,
                                                      .expert_count = options.expert_count,
                                                      .spare_count = options.spare_count}));
  std::unique_ptr<SlotCache> cache(new SlotCache(options, std::move(plan)));
  HEARTH_RETURN_IF_ERROR(cache->MakePools());
  return cache;
}

absl::Status SlotCache::MakePools() {
  const auto layer_count = static_cast<uint32_t>(options_.blob_bytes.size());
  for (uint32_t p = 0; p < shapes_.size(); ++p) {
    const SlotPoolShape& shape = shapes_[p];
    for (const LayerId layer : shape.layers) pool_of_layer_[layer.value] = p;
    const uint64_t blob_bytes = options_.blob_bytes[shape.layers.front().value];
    pools_.push_back(std::make_unique<Pool>(shape, blob_bytes, layer_count, options_.expert_count));
    if (shape.slot_count == 0) continue;
    const PoolShape pool_shape = {.layer_count = layer_count,
                                  .expert_count = options_.expert_count,
                                  .layers = shape.layers,
                                  .slot_count = shape.slot_count,
                                  .layer_slots_min = pools_.back()->layer_slots_min};
    HEARTH_ASSIGN_OR_RETURN(pools_.back()->policy, options_.make_policy
                                                       ? options_.make_policy(pool_shape)
                                                       : CreatePolicy(options_.policy, pool_shape));
    HEARTH_CHECK(pools_.back()->policy != nullptr);
  }
  return absl::OkStatus();
}

uint64_t SlotCache::bytes() const {
  uint64_t sum = 0;
  for (const SlotPoolShape& shape : shapes_) sum += shape.total_bytes();
  return sum;
}

uint32_t SlotCache::pool_of(LayerId layer) const {
  HEARTH_CHECK(layer.value < pool_of_layer_.size());
  return pool_of_layer_[layer.value];
}

SlotLease SlotCache::Acquire(ExpertKey key) {
  const uint32_t p = pool_of(key.layer);
  SlotTable& table = pools_[p]->table;
  const SlotId slot = table.Find(key);
  if (!slot.valid() || table.state(slot) != SlotState::kResident) return SlotLease();
  table.Hold(slot);
  return SlotLease(this, {.pool = p, .slot = slot});
}

void SlotCache::Release(SlotRef ref) { pools_[ref.pool]->table.Release(ref.slot); }

bool SlotCache::resident(ExpertKey key) const { return PoolOf(key.layer).table.resident(key); }

float SlotCache::Heat(ExpertKey key) const {
  const Pool& pool = PoolOf(key.layer);
  return pool.policy == nullptr ? 0 : pool.policy->Heat(key);
}

void SlotCache::Observe(const LayerTraffic& traffic) {
  Pool& pool = PoolOf(traffic.layer);
  if (!in_window_) window_swap_bytes_ = 0;
  in_window_ = true;
  observed_ = traffic.layer;
  layer_swap_count_ = 0;
  if (pool.policy == nullptr) return;
  pool.policy->Observe(traffic);
  if (traffic.kind == TrafficKind::kWindow) {
    pool.guard.Observe(static_cast<uint32_t>(traffic.experts.size()));
  }
}

// Whether a swap that the policy wants may begin, after `growth_count` others without a victim.
bool SlotCache::Allows(const Pool& pool, const Swap& swap, uint32_t growth_count) const {
  if (!swap.out.layer.valid()) return pool.expected_count() + growth_count < pool.slot_count;
  if (pool.expected_count() > pool.slot_count) return false;
  return !pool.guard.pinned() ||
         pool.policy->Heat(swap.in) > PinGuard::kClearlyHotter * pool.policy->Heat(swap.out);
}

std::span<const Swap> SlotCache::Propose() {
  if (!observed_.valid()) return {};
  Pool& pool = PoolOf(observed_);
  if (pool.policy == nullptr) return {};
  pool.table.Reclaim();
  const uint64_t bytes_max = options_.swap_bytes_per_window_max;
  const uint64_t bytes_left = bytes_max - std::min(bytes_max, window_swap_bytes_);
  uint64_t most = proposals_.size() - std::min(proposals_.size(), layer_swap_count_);
  most = std::min<uint64_t>(most, pool.table.counts().free);
  most = std::min(most, bytes_left / pool.blob_bytes);
  if (most == 0) return {};
  const size_t proposed = pool.policy->Propose(std::span(proposals_).first(most));
  HEARTH_CHECK(proposed <= most);
  uint32_t count = 0;
  uint32_t growth_count = 0;
  for (size_t i = 0; i < proposed; ++i) {
    const Swap swap = proposals_[i];
    if (!Allows(pool, swap, growth_count)) continue;
    growth_count += swap.out.layer.valid() ? 0 : 1;
    proposals_[count++] = swap;
  }
  return std::span(proposals_).first(count);
}

void SlotCache::EndWindow(uint32_t token_count) {
  in_window_ = false;
  observed_ = LayerId();
  ++window_count_;
  for (uint32_t p = 0; p < pools_.size(); ++p) {
    Pool& pool = *pools_[p];
    if (pool.policy == nullptr) continue;
    pool.policy->EndWindow(token_count);
    pool.guard.EndWindow(pool.slot_count);
    pool.table.Reclaim();
    Trim(p);
  }
}

void SlotCache::Seed(LayerId layer, std::span<const float> sightings) {
  Pool& pool = PoolOf(layer);
  if (pool.policy != nullptr) pool.policy->Seed(layer, sightings);
}

absl::StatusOr<SlotRef> SlotCache::BeginFill(ExpertKey key) {
  const uint32_t p = pool_of(key.layer);
  SlotTable& table = pools_[p]->table;
  if (const SlotId slot = table.Find(key); slot.valid()) {
    HEARTH_CHECK(table.state(slot) == SlotState::kFilling);  // a resident needs no second copy
    return on_its_way_;
  }
  table.Reclaim();
  const SlotId slot = table.BeginFill(key);
  if (!slot.valid()) return no_spare_;
  return SlotRef{.pool = p, .slot = slot};
}

void SlotCache::BeginSwap(const Swap& swap) {
  Pool& pool = PoolOf(swap.in.layer);
  HEARTH_CHECK(pool.policy != nullptr);
  HEARTH_CHECK(!pool.table.resident(swap.in));
  HEARTH_CHECK((pool.FlagsOf(swap.in) & kIncoming) == 0);
  pool.FlagsOf(swap.in) |= kIncoming;
  if (swap.out.layer.valid()) {
    HEARTH_CHECK(pool_of(swap.out.layer) == pool_of(swap.in.layer));
    HEARTH_CHECK(pool.table.resident(swap.out));
    HEARTH_CHECK((pool.FlagsOf(swap.out) & kOutgoing) == 0);
    pool.FlagsOf(swap.out) |= kOutgoing;
  } else {
    ++pool.growth_count;
  }
  if (in_window_) window_swap_bytes_ += pool.blob_bytes;
  if (swap.in.layer == observed_) ++layer_swap_count_;
  pool.policy->Begin(swap);
}

void SlotCache::Land(SlotRef ref, const Swap& swap) {
  Pool& pool = PoolOf(swap.in.layer);
  HEARTH_CHECK(ref.pool == pool_of(swap.in.layer));
  HEARTH_CHECK(pool.table.Find(swap.in) == ref.slot);
  HEARTH_CHECK((pool.FlagsOf(swap.in) & kIncoming) != 0);
  pool.FlagsOf(swap.in) &= static_cast<uint8_t>(~kIncoming);
  pool.table.Land(ref.slot);
  LogSwap(pool, swap);
  if (sink_ != nullptr) sink_->OnResident(swap.in, ref);
  if (swap.out.layer.valid()) {
    HEARTH_CHECK((pool.FlagsOf(swap.out) & kOutgoing) != 0);
    pool.FlagsOf(swap.out) &= static_cast<uint8_t>(~kOutgoing);
    Evict(pool, swap.out);
  } else {
    --pool.growth_count;
  }
  pool.policy->Land(swap);
  ++swap_count_;
  swap_bytes_ += pool.blob_bytes;
  Trim(ref.pool);
}

void SlotCache::LogSwap(const Pool& pool, const Swap& swap) {
  const float out_heat = swap.out.layer.valid() ? pool.policy->Heat(swap.out) : 0;
  log_[swap_count_ % kSwapLogCount] = {.in = swap.in,
                                       .out = swap.out,
                                       .in_heat = pool.policy->Heat(swap.in),
                                       .out_heat = out_heat,
                                       .window = window_count_};
}

size_t SlotCache::RecentSwaps(std::span<LandedSwap> out) const {
  const auto kept = static_cast<size_t>(std::min<uint64_t>(swap_count_, kSwapLogCount));
  const size_t count = std::min(kept, out.size());
  for (size_t i = 0; i < count; ++i) out[i] = log_[(swap_count_ - 1 - i) % kSwapLogCount];
  return count;
}

void SlotCache::Evict(Pool& pool, ExpertKey key) {
  if (sink_ != nullptr) sink_->OnEviction(key);
  pool.table.Evict(pool.table.Find(key));
}

void SlotCache::Discard(SlotRef ref) { pools_[ref.pool]->table.Discard(ref.slot); }

void SlotCache::CancelSwap(const Swap& swap) {
  Pool& pool = PoolOf(swap.in.layer);
  HEARTH_CHECK((pool.FlagsOf(swap.in) & kIncoming) != 0);
  pool.FlagsOf(swap.in) &= static_cast<uint8_t>(~kIncoming);
  if (swap.out.layer.valid()) {
    HEARTH_CHECK((pool.FlagsOf(swap.out) & kOutgoing) != 0);
    pool.FlagsOf(swap.out) &= static_cast<uint8_t>(~kOutgoing);
  } else {
    --pool.growth_count;
  }
  pool.policy->Cancel(swap);
  ++cancelled_count_;
  Trim(pool_of(swap.in.layer));
}

// Evicts the coldest while a pool holds more than it may. The victims of swaps under way stay until
// those have ended; the experts of a pass at hand until it has, and so does each layer's minimum.
void SlotCache::Trim(uint32_t p) {
  Pool& pool = *pools_[p];
  while (pool.table.counts().resident > pool.slot_count) {
    ExpertKey coldest = pool.policy->Coldest();
    if (!coldest.layer.valid() && !in_window_) {
      float least = 0;
      for (uint32_t s = 0; s < pool.table.total_count(); ++s) {
        if (pool.table.state(SlotId(s)) != SlotState::kResident) continue;
        const ExpertKey key = pool.table.key(SlotId(s));
        if ((pool.FlagsOf(key) & kOutgoing) != 0) continue;
        const float heat = pool.policy->Heat(key);
        if (coldest.layer.valid() && !(heat < least)) continue;
        coldest = key;
        least = heat;
      }
    }
    if (!coldest.layer.valid()) return;
    HEARTH_CHECK((pool.FlagsOf(coldest) & kOutgoing) == 0);
    Evict(pool, coldest);
    pool.policy->Remove(coldest);
  }
}

// What a pool with free slots may take, with a mark on the hottest that a layer below its minimum
// lacks; a layer of which nothing is known has none.
std::vector<SlotCache::Candidate> SlotCache::FillCandidates(const Pool& pool) const {
  std::vector<Candidate> candidates;
  const auto hotter = [](const Candidate& a, const Candidate& b) {
    return a.heat != b.heat ? a.heat > b.heat : a.key.expert < b.key.expert;
  };
  for (const LayerId layer : pool.layers) {
    const auto begin = static_cast<ptrdiff_t>(candidates.size());
    uint32_t present = 0;
    for (uint32_t e = 0; e < pool.expert_count; ++e) {
      const ExpertKey key{layer, ExpertId(e)};
      if (pool.table.Find(key).valid() || (pool.FlagsOf(key) & kIncoming) != 0) {
        ++present;
      } else {
        candidates.push_back({.key = key, .heat = pool.policy->Heat(key)});
      }
    }
    const std::span<Candidate> of_layer = std::span(candidates).subspan(begin);
    const size_t lacking = std::min<size_t>(
        pool.layer_slots_min - std::min(pool.layer_slots_min, present), of_layer.size());
    std::partial_sort(of_layer.begin(), of_layer.begin() + lacking, of_layer.end(), hotter);
    for (Candidate& c : of_layer.first(lacking)) c.is_lacking = c.heat > 0;
  }
  return candidates;
}

size_t SlotCache::ProposeFill(std::span<Swap> out) const {
  const auto comes_first = [](const Candidate& a, const Candidate& b) {
    if (a.is_lacking != b.is_lacking) return a.is_lacking;
    if (a.heat != b.heat) return a.heat > b.heat;
    if (a.key.expert != b.key.expert) return a.key.expert < b.key.expert;
    return a.key.layer < b.key.layer;
  };
  size_t count = 0;
  std::vector<size_t> taken(pools_.size());
  // Those of which nothing is known come after what is known in any pool.
  for (const bool cold : {false, true}) {
    for (size_t p = 0; p < pools_.size(); ++p) {
      const Pool& pool = *pools_[p];
      if (pool.policy == nullptr || pool.expected_count() >= pool.slot_count) continue;
      if (count == out.size()) return count;
      std::vector<Candidate> candidates = FillCandidates(pool);
      std::erase_if(candidates, [cold](const Candidate& c) { return cold == (c.heat > 0); });
      size_t room = std::min(pool.slot_count - pool.expected_count(), pool.table.available_count());
      room = std::min({room - taken[p], candidates.size(), out.size() - count});
      std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(room),
                        candidates.end(), comes_first);
      for (size_t i = 0; i < room; ++i) out[count++] = {candidates[i].key, ExpertKey()};
      taken[p] += room;
    }
  }
  return count;
}

void SlotCache::Lower(uint32_t p, uint32_t slot_count) {
  HEARTH_CHECK(p < pools_.size());
  Pool& pool = *pools_[p];
  if (slot_count >= pool.slot_count) return;
  SlotPoolShape& shape = shapes_[p];
  const uint32_t total_before = shape.total_count();
  shape.slot_count = slot_count;
  shape.spare_count = SpareCount(slot_count, pool.expert_total, options_.spare_count);
  pool.slot_count = slot_count;
  pool.policy->Resize(slot_count);
  pool.table.Reclaim();
  pool.table.Retire(total_before - shape.total_count());
  Trim(p);
}

uint64_t SlotCache::generation(SlotRef ref) const {
  return pools_[ref.pool]->table.generation(ref.slot);
}

SlotCounts SlotCache::counts(uint32_t pool) const { return pools_[pool]->table.counts(); }

SlotState SlotCache::state(SlotRef ref) const { return pools_[ref.pool]->table.state(ref.slot); }

SlotCacheStats SlotCache::stats() const {
  SlotCacheStats stats{
      .swap_count = swap_count_, .swap_bytes = swap_bytes_, .cancelled_count = cancelled_count_};
  for (const auto& pool : pools_) {
    stats.resident_count += pool->table.counts().resident;
    stats.pinned = stats.pinned || pool->guard.pinned();
  }
  return stats;
}

std::vector<std::string> SlotCache::notes() const {
  std::vector<std::string> lines = plan_notes_;
  for (uint32_t p = 0; p < pools_.size(); ++p) {
    const Pool& pool = *pools_[p];
    if (!pool.guard.pinned()) continue;
    const uint32_t enough = pool.guard.enough_slot_count();
    const uint32_t total = enough + SpareCount(enough, pool.expert_total, options_.spare_count);
    lines.push_back(absl::StrFormat(
        "slots: pool %d (experts of %d bytes) has %d slots, but a window uses %d experts: it keeps "
        "its hottest and swaps only for clearly hotter ones; %d slots (%s) would be enough",
        p, pool.blob_bytes, pool.slot_count, pool.guard.window_expert_count(), enough,
        FormatBytes(total * shapes_[p].slot_bytes)));
  }
  return lines;
}

}  // namespace hearth
