// Routing profiles in files, and what a model and a cache need of them: policy code does
// no I/O and knows no packs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/policy/routing_profile.h"
#include "pack/format/manifest.h"

namespace hearth {

// What profiles of this pack's model are bound to.
RoutingIdentity IdentityOf(const Manifest& manifest);

// Errors name the path; see RoutingProfile::FromJson for what is refused.
absl::StatusOr<RoutingProfile> ReadProfile(const std::string& path);

// Saves as ReplaceFile does: a process that is killed leaves the old file whole.
absl::Status WriteProfile(const std::string& path, const RoutingProfile& profile);

// How much heat a profile is worth as a start, for ResidencyPolicy::Seed and its like: for each
// layer the (expert_count) values
//
//   scale x count / rows, where rows = (sum of the layer's counts) / ranks,
//
// that is, scale times the chance that a token chooses the expert. An expert that is sighted with
// chance p in every token ends up with heat p / (1 - d) on a time scale that keeps d of its heat
// per token; so scale = 1 / (1 - d) seeds a policy as if it had seen the profile's texts for long,
// and the seed fades with the same d. Smaller scales trust the profile less. A layer without counts
// gets zeros.
inline constexpr double kSeedScale = 100;  // d = 0.99 per token
std::vector<std::vector<float>> SightingsOf(const RoutingProfile& profile,
                                            double scale = kSeedScale);

}  // namespace hearth
