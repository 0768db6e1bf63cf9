// How far the cache is from the best it could have been: a ring of the last windows' experts, each
// with what it was (a hit or not), and the hit rate of Belady's oracle over the same windows. The
// ring is written by the thread that plans; a sample of it is judged elsewhere, without a hurry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/policy/residency_policy.h"
#include "runtime/base/ids.h"

namespace hearth {

// Windows in order, as they were used.
struct RegretSample {
  uint32_t layer_count = 0;
  uint32_t expert_count = 0;
  struct Use {
    uint16_t expert = 0;
    bool hit = false;
  };
  std::vector<uint32_t> counts;  // (windows, layer_count): distinct experts
  std::vector<Use> uses;         // in that order

  uint64_t window_count() const { return layer_count == 0 ? 0 : counts.size() / layer_count; }
};

struct Regret {
  uint64_t window_count = 0;
  uint64_t distinct = 0;  // experts, summed over windows and the layers of the pools
  uint64_t hits = 0;
  uint64_t belady_hits = 0;  // at the same slots; the oracle begins with what serves it best
  double hit_rate() const;
  double belady_hit_rate() const;
};

// Judges the windows of `sample` against the pools that they were served from. Pure, and slow:
// about 20 ns for each use.
Regret MeasureRegret(const RegretSample& sample, std::span<const PoolShape> pools);

// Not thread-safe; nothing allocates after construction but Sample().
class RegretRing {
 public:
  struct Shape {
    uint32_t layer_count = 0;
    uint32_t expert_count = 0;         // at most 32,768: a use is 16 bits with its hit
    uint32_t window_count_max = 1024;  // the last so many
    uint32_t layer_uses_max = 40;      // on average; more per window leaves room for fewer windows
    // 48 layers: 1,024 x 48 x 40 x 2 bytes = 3.8 MiB.
  };
  explicit RegretRing(const Shape& shape);

  // One layer of the window at hand, layers in ascending order, each at most once; `hits` holds 1
  // for those of `experts` (ascending ids) that were in their slot.
  void Add(LayerId layer, std::span<const ExpertId> experts, std::span<const uint8_t> hits);
  void EndWindow();  // layers that were not added used nothing
  void Clear();

  uint64_t window_count() const { return window_count_; }
  // Counts the windows in the ring, without the oracle.
  double hit_rate() const;
  RegretSample Sample() const;

 private:
  void DropOldest();

  const Shape shape_;
  std::vector<uint16_t> uses_;    // ring: expert << 1 | hit
  std::vector<uint16_t> counts_;  // ring: (window_count_max + 1, layer_count)
  uint64_t use_begin_ = 0;        // ever growing positions; modulo the ring's length
  uint64_t use_end_ = 0;
  uint64_t window_begin_ = 0;
  uint64_t window_count_ = 0;
  uint64_t open_uses_ = 0;  // of the window at hand
  bool overflown_ = false;  // the window at hand does not fit: it is left out
  uint64_t hit_count_ = 0;  // in the ring's closed windows
};

}  // namespace hearth
