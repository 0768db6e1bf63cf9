#include "runtime/engine/profile_file.h"

#include <numeric>
#include <span>
#include <string_view>

#include "cache/policy/profile_seed.h"
#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"

namespace hearth {

RoutingIdentity IdentityOf(const Manifest& manifest) {
  const ModelGeometry& g = manifest.geometry;
  return {.model_xxh3_128 = manifest.source_xxh3_128,
          .tokenizer_xxh3_128 = manifest.tokenizer_xxh3_128,
          .layer_count = g.layer_count(),
          .has_mtp = g.has_mtp,
          .expert_count = g.moe.expert_count,
          .ranks = g.moe.experts_per_token};
}

absl::StatusOr<RoutingProfile> ReadProfile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kProfileBytesMax));
  return RoutingProfile::FromJson(text, path);
}

absl::Status WriteProfile(const std::string& path, const RoutingProfile& profile) {
  if (absl::Status status = profile.Validate(); !status.ok()) return Annotate(status, path);
  return ReplaceFile(path, profile.ToJson());
}

std::vector<std::vector<float>> SightingsOf(const RoutingProfile& profile) {
  const RoutingIdentity& id = profile.identity;
  const std::vector<uint64_t> counts = profile.Counts();
  std::vector<std::vector<float>> sightings;
  for (uint32_t layer = 0; layer < id.all_layer_count(); ++layer) {
    const std::span<const uint64_t> row =
        std::span(counts).subspan(size_t{layer} * id.expert_count, id.expert_count);
    const uint64_t entries = std::accumulate(row.begin(), row.end(), uint64_t{0});
    sightings.push_back(ProfileSightings(row, entries / id.ranks));
  }
  return sightings;
}

}  // namespace hearth
