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

// What a profile is worth as a start, for ResidencyPolicy::Seed and its like: for each layer the
// ProfileSightings() of its counts over the rows that went through it, (sum of the counts) / ranks.
// A layer without counts gets zeros.
std::vector<std::vector<float>> SightingsOf(const RoutingProfile& profile);

}  // namespace hearth
