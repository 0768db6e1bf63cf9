#include "cache/policy/belady.h"

#include "cache/policy/index_set.h"
#include "runtime/base/check.h"

namespace hearth {

BeladyResult Belady(const StepSequence& sequence, uint64_t slot_count, BeladyStart start) {
  constexpr uint64_t kNever = UINT64_MAX;
  const std::vector<uint32_t>& items = sequence.items;
  // Where each use's item is used next; from the back, `soonest` ends as each item's first use.
  std::vector<uint64_t> next(items.size());
  std::vector<uint64_t> soonest(sequence.item_count, kNever);
  for (size_t i = items.size(); i-- > 0;) {
    HEARTH_CHECK(items[i] < sequence.item_count);
    next[i] = soonest[items[i]];
    soonest[items[i]] = i;
  }
  IndexSet kept(items.size());  // the next use of every item that is kept
  const auto evict = [&] {
    while (kept.count() > slot_count) kept.Erase(kept.Largest());
  };
  if (start == BeladyStart::kFilled) {
    for (const uint64_t first : soonest) {
      if (first != kNever) kept.Insert(first);
    }
    evict();
  }
  BeladyResult result{.hits = std::vector<uint8_t>(items.size())};
  std::vector<uint8_t> missed(sequence.item_count);  // at its last use
  for (size_t step = 0; step + 1 < sequence.begins.size(); ++step) {
    for (uint64_t i = sequence.begins[step]; i < sequence.begins[step + 1]; ++i) {
      const bool hit = kept.Contains(i);
      if (hit) {
        kept.Erase(i);
        result.hits[i] = 1;
        ++result.hit_count;
        result.fill_count += missed[items[i]];
      }
      missed[items[i]] = hit ? 0 : 1;
      if (next[i] != kNever) kept.Insert(next[i]);
    }
    evict();
  }
  return result;
}

}  // namespace hearth
