// How often the experts that a token needs are among those that a memory holds, if it holds the
// ones that a profile of routing counts most.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/policy/routing_profile.h"

namespace hearth::cli {

// Shares of route entries, 0 to 1; low <= expected <= high.
struct HitRange {
  double low = 0;
  double expected = 0;
  double high = 0;
};

class HitCurve {
 public:
  // Every expert as likely as any other: what can be said without a profile, and less than what any
  // text gives.
  static HitCurve Even(uint32_t layer_count, uint32_t expert_count);
  // From the profile's counts. The range is that of its domains, each held against what all the
  // others count most: a text that the profile has not seen. One domain alone has no range.
  static HitCurve Of(const RoutingProfile& profile);

  // With `held` experts of all layers together.
  HitRange At(uint64_t held) const;
  bool from_profile() const { return !shares_.empty(); }

 private:
  // Shares by rising number of experts held: [0] is 0, the last is 1.
  using Shares = std::vector<double>;

  uint64_t all_count_ = 0;      // experts of all layers
  Shares shares_;               // of all domains together; empty: even
  std::vector<Shares> others_;  // of each domain, the experts in the order of all others' counts
};

}  // namespace hearth::cli
