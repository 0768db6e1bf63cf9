// Which experts a pool of equal slots holds. A policy is bookkeeping only: it sees the traffic,
// keeps the set of residents and proposes swaps; it does no I/O, reads no clock and moves no bytes,
// so that a trace replays it exactly. The same policies rank VRAM slots, RAM blocks and replay.
//
// The life of a window: for each layer Observe(), then Propose(), and for each proposal that the
// caller takes up Begin() and later either Land() or Cancel(); after the last layer EndWindow().
// Not thread-safe; nothing allocates after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/policy/traffic.h"
#include "runtime/base/ids.h"

namespace hearth {

struct PoolShape {
  uint32_t layer_count = 0;      // layers of the whole model, the MTP layer included
  uint32_t expert_count = 0;     // per layer
  std::vector<LayerId> layers;   // whose experts this pool may hold: one quantisation class
  uint32_t slot_count = 0;       // experts that the pool holds at most; spare slots not counted
  uint32_t layer_slots_min = 0;  // eviction leaves every layer at least so many of its residents
};

struct Swap {
  ExpertKey in;
  ExpertKey out;  // out.layer invalid: a slot is free, nothing leaves
};

class ResidencyPolicy {
 public:
  virtual ~ResidencyPolicy() = default;
  virtual std::string_view name() const = 0;

  // One layer of the pass at hand. Its experts are not evicted before EndWindow().
  virtual void Observe(const LayerTraffic& traffic) = 0;
  // Swaps for experts of the layer last observed that are neither resident nor on their way,
  // hottest first, with distinct victims; at most out.size(). Changes nothing: a swap that the
  // caller does not begin is forgotten.
  virtual size_t Propose(std::span<Swap> out) = 0;
  // The pass is over and `token_count` of its rows were kept: heat decays per token.
  virtual void EndWindow(uint32_t token_count) = 0;

  // The swap is under way: `out` stays resident, but is not proposed as a victim again.
  virtual void Begin(const Swap& swap) = 0;
  virtual void Land(const Swap& swap) = 0;    // `in` is resident, `out` is not any more
  virtual void Cancel(const Swap& swap) = 0;  // as if it had not begun
  virtual void Remove(ExpertKey key) = 0;     // a resident has gone for another reason

  virtual bool resident(ExpertKey key) const = 0;
  virtual uint32_t resident_count() const = 0;

  // Adds to the heat of a layer's experts: (expert_count) sightings, from a profile or saved state.
  virtual void Seed(LayerId layer, std::span<const float> sightings) = 0;
  // Larger is hotter, 0 the least; comparable between the layers of a pool, at one time.
  virtual float Heat(ExpertKey key) const = 0;
  // A smaller or larger pool from now on. Residents beyond it are the caller's to Remove(), coldest
  // first; nothing is proposed while there are any.
  virtual void Resize(uint32_t slot_count) = 0;
  // The coldest resident that is not in the pass at hand nor on its way out and whose layer has
  // more than its minimum; an invalid layer when there is none.
  virtual ExpertKey Coldest() const = 0;
};

// The non-resident and resident experts of a pool by descending heat, equals by key: at most
// out.size(). For filling a pool before the first window.
size_t HottestExperts(const ResidencyPolicy& policy, const PoolShape& shape,
                      std::span<ExpertKey> out);

// What is used where nobody chooses; POLICIES.md has the measurements.
inline constexpr std::string_view kDefaultPolicy = "forecast";

// "forecast", "two-scale", "lru", "lfu", "decay", "static"; more in policy_table. NotFound lists
// the names, the nearest first.
absl::StatusOr<std::unique_ptr<ResidencyPolicy>> CreatePolicy(std::string_view name,
                                                              const PoolShape& shape);
std::vector<std::string> PolicyNames();

}  // namespace hearth
