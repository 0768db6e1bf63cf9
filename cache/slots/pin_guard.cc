#include "cache/slots/pin_guard.h"

#include <algorithm>
#include <cmath>

namespace hearth {

constexpr double kAverageStep = 1.0 / 16;

void PinGuard::Observe(uint32_t distinct_count) {
  ++observed_layer_count_;
  observed_expert_count_ += distinct_count;
}

void PinGuard::EndWindow(uint32_t slot_count) {
  if (observed_layer_count_ > 0 && 2 * observed_layer_count_ >= layer_count_) {
    const double touched = observed_expert_count_;
    average_ = average_ == 0 ? touched : average_ + kAverageStep * (touched - average_);
  }
  observed_layer_count_ = 0;
  observed_expert_count_ = 0;

  is_pinned_ = slot_count > 0 && slot_count < enough_slot_count();
}

uint32_t PinGuard::window_expert_count() const {
  return static_cast<uint32_t>(std::ceil(average_));
}

uint32_t PinGuard::enough_slot_count() const {
  const double enough = std::ceil(kSlotsPerWindowExpert * average_);
  return static_cast<uint32_t>(std::min(enough, static_cast<double>(expert_total_)));
}

}  // namespace hearth
