// What a routing profile says about heat: its counts as sightings to seed a policy with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

// A profile's expert that every token chose is worth so many sightings: half of what a slow average
// that keeps 0.99 per token settles at, because texts differ from those of the profile.
inline constexpr float kProfileSightings = 50;

// (counts.size()) sightings of one layer whose route entries were counted over `token_count`
// tokens; zeros for none.
std::vector<float> ProfileSightings(std::span<const uint64_t> counts, uint64_t token_count);

}  // namespace hearth
