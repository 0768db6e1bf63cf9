// The best that any policy could do: keep what is needed soonest (Belady's MIN, with bypass). It
// knows the future, so it is an oracle for replay and for the gauge of regret.
//
// Time goes in steps; in each, a set of distinct items is used, and an item hits when it was kept
// since the step before. After a step at most so many items are kept. Of all ways to keep them,
// keeping those whose next use is nearest has the most hits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

enum class BeladyStart {
  kEmpty,   // nothing is kept before the first step
  kFilled,  // whatever serves best is
};

struct StepSequence {
  uint32_t item_count = 0;
  std::vector<uint32_t> items;   // below item_count; distinct within a step
  std::vector<uint64_t> begins;  // (steps + 1), into items
};

struct BeladyResult {
  std::vector<uint8_t> hits;  // (items): 1 for a hit
  uint64_t hit_count = 0;
  uint64_t fill_count = 0;  // misses that were kept until they hit; a bypassed miss is none
};

BeladyResult Belady(const StepSequence& sequence, uint64_t slot_count, BeladyStart start);

}  // namespace hearth
