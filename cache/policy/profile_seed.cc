#include "cache/policy/profile_seed.h"

namespace hearth {

std::vector<float> ProfileSightings(std::span<const uint64_t> counts, uint64_t token_count) {
  std::vector<float> sightings(counts.size());
  if (token_count == 0) return sightings;
  for (size_t e = 0; e < counts.size(); ++e) {
    const double share = static_cast<double>(counts[e]) / static_cast<double>(token_count);
    sightings[e] = static_cast<float>(kProfileSightings * share);
  }
  return sightings;
}

}  // namespace hearth
