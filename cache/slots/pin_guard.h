// Whether a pool is too small for the passes it serves. A pool that holds less than one and a half
// times what a window touches would throw out what the next window needs; it keeps ("pins") its
// hottest experts instead: one of them goes only for a newcomer that is clearly hotter. On Flashlet
// (10-40% slots, windows of 4) that makes a sixth of the swaps, for 0.6 points of hits at most.
#pragma once

#include <cstdint>

namespace hearth {

class PinGuard {
 public:
  static constexpr double kSlotsPerWindowExpert = 1.5;
  static constexpr float kClearlyHotter = 2;  // the newcomer's heat over the victim's

  // Of a pool for `layer_count` layers with `expert_total` experts in all.
  PinGuard(uint32_t layer_count, uint32_t expert_total)
      : layer_count_(layer_count), expert_total_(expert_total) {}

  // One layer of a window used so many distinct experts.
  void Observe(uint32_t distinct_count);
  // A pass over fewer than half of the layers (a drafter's) says nothing of what a window touches.
  void EndWindow(uint32_t slot_count);

  bool pinned() const { return is_pinned_; }
  // Running average over about 16 windows, rounded up; 0 before the first.
  uint32_t window_expert_count() const;
  uint32_t enough_slot_count() const;  // what would not be pinned

 private:
  const uint32_t layer_count_;
  const uint32_t expert_total_;
  uint32_t observed_layer_count_ = 0;  // in the pass at hand
  uint32_t observed_expert_count_ = 0;
  double average_ = 0;
  bool is_pinned_ = false;
};

}  // namespace hearth
