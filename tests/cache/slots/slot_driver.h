// Plays the engine's part for a SlotCache: windows of given routes, whose swaps are carried out at
// once, and a policy that wants every expert it sees.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cache/slots/slot_cache.h"

namespace hearth {

inline ExpertKey Key(uint32_t layer, uint32_t expert) { return {LayerId(layer), ExpertId(expert)}; }

inline SlotCacheOptions SmallCache(uint32_t layers, uint32_t experts, uint64_t slots) {
  return {.blob_bytes = std::vector<uint64_t>(layers, 1000),
          .expert_count = experts,
          .budget = {.slot_count = slots}};
}

inline std::unique_ptr<SlotCache> MakeCache(const SlotCacheOptions& options) {
  auto cache = SlotCache::Create(options);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return cache.ok() ? *std::move(cache) : nullptr;
}

inline void ObserveLayer(SlotCache& cache, uint32_t layer, std::vector<uint32_t> experts,
                         TrafficKind kind = TrafficKind::kWindow) {
  std::sort(experts.begin(), experts.end());
  std::vector<ExpertSighting> sightings;
  for (const uint32_t e : experts) {
    sightings.push_back({.expert = ExpertId(e), .entry_count = 1});
  }
  cache.Observe({.layer = LayerId(layer), .experts = sightings, .kind = kind});
}

// Begins `swap`, fills a slot and lands it; false when no slot is free.
inline bool CarryOut(SlotCache& cache, const Swap& swap) {
  cache.BeginSwap(swap);
  const absl::StatusOr<SlotRef> slot = cache.BeginFill(swap.in);
  if (!slot.ok()) {
    cache.CancelSwap(swap);
    return false;
  }
  cache.Land(*slot, swap);
  return true;
}

struct WindowResult {
  uint32_t hit_count = 0;
  uint32_t miss_count = 0;
  uint32_t swap_count = 0;
  uint32_t eviction_count = 0;  // of swap_count
};

// One pass over layers 0, 1, ...: `routes` has the distinct experts of each.
inline WindowResult RunWindow(SlotCache& cache, std::span<const std::vector<uint32_t>> routes,
                              uint32_t token_count = 1) {
  WindowResult result;
  for (uint32_t layer = 0; layer < routes.size(); ++layer) {
    std::vector<SlotLease> leases;
    for (const uint32_t e : routes[layer]) {
      leases.push_back(cache.Acquire(Key(layer, e)));
      leases.back().valid() ? ++result.hit_count : ++result.miss_count;
    }
    ObserveLayer(cache, layer, routes[layer]);
    const std::span<const Swap> proposed = cache.Propose();
    const std::vector<Swap> swaps(proposed.begin(), proposed.end());
    for (const Swap& swap : swaps) {
      if (!CarryOut(cache, swap)) continue;
      ++result.swap_count;
      result.eviction_count += swap.out.layer.valid() ? 1 : 0;
    }
  }
  cache.EndWindow(token_count);
  return result;
}

// Fills the free slots; how many.
inline uint32_t Fill(SlotCache& cache) {
  std::vector<Swap> swaps(4096);
  swaps.resize(cache.ProposeFill(swaps));
  uint32_t filled = 0;
  for (const Swap& swap : swaps) filled += CarryOut(cache, swap) ? 1 : 0;
  return filled;
}

// Wants every expert it is shown, whatever the pool's bounds: what it proposes beyond them is for
// the cache to hold back. Victims are the residents with the lowest heat, which the test sets.
class GreedyPolicy final : public ResidencyPolicy {
 public:
  explicit GreedyPolicy(std::map<ExpertKey, float>* heat) : heat_(heat) {}

  std::string_view name() const override { return "greedy"; }
  void Observe(const LayerTraffic& traffic) override {
    layer_ = traffic.layer;
    observed_.assign(traffic.experts.begin(), traffic.experts.end());
    std::stable_sort(observed_.begin(), observed_.end(), [&](const auto& a, const auto& b) {
      return Heat({layer_, a.expert}) > Heat({layer_, b.expert});
    });
  }
  size_t Propose(std::span<Swap> out) override {
    std::vector<ExpertKey> victims;
    for (const ExpertKey key : resident_) {
      if (outgoing_.count(key) == 0) victims.push_back(key);
    }
    std::sort(victims.begin(), victims.end(),
              [&](ExpertKey a, ExpertKey b) { return Heat(a) < Heat(b); });
    size_t count = 0;
    for (const ExpertSighting& s : observed_) {
      const ExpertKey in{layer_, s.expert};
      if (count == out.size()) break;
      if (resident_.count(in) + incoming_.count(in) != 0) continue;
      out[count] = {in, is_growing || count >= victims.size() ? ExpertKey() : victims[count]};
      ++count;
    }
    return count;
  }
  void EndWindow(uint32_t) override { observed_.clear(); }
  void Begin(const Swap& swap) override {
    incoming_.insert(swap.in);
    if (swap.out.layer.valid()) outgoing_.insert(swap.out);
  }
  void Land(const Swap& swap) override {
    Cancel(swap);
    resident_.insert(swap.in);
    if (swap.out.layer.valid()) resident_.erase(swap.out);
  }
  void Cancel(const Swap& swap) override {
    incoming_.erase(swap.in);
    if (swap.out.layer.valid()) outgoing_.erase(swap.out);
  }
  void Remove(ExpertKey key) override { resident_.erase(key); }
  bool resident(ExpertKey key) const override { return resident_.count(key) != 0; }
  uint32_t resident_count() const override { return static_cast<uint32_t>(resident_.size()); }
  void Seed(LayerId, std::span<const float>) override {}
  float Heat(ExpertKey key) const override {
    const auto at = heat_->find(key);
    return at == heat_->end() ? 0 : at->second;
  }
  void Resize(uint32_t) override {}
  ExpertKey Coldest() const override {
    ExpertKey coldest;
    for (const ExpertKey key : resident_) {
      if (outgoing_.count(key) != 0) continue;
      if (!coldest.layer.valid() || Heat(key) < Heat(coldest)) coldest = key;
    }
    return coldest;
  }

  bool is_growing = false;  // proposes as if slots were always free

 private:
  std::map<ExpertKey, float>* heat_;
  LayerId layer_;
  std::vector<ExpertSighting> observed_;
  std::set<ExpertKey> resident_, incoming_, outgoing_;
};

}  // namespace hearth
