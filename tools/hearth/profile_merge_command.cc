// hearth profile merge and hearth profile diff: profiles added up and held against each other.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"
#include "runtime/config/profile_config.h"
#include "runtime/engine/profile_file.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

// All of one model: the first that is not is refused by its path.
absl::StatusOr<std::vector<RoutingProfile>> ReadProfiles(const std::vector<std::string>& paths) {
  std::vector<RoutingProfile> profiles;
  for (const std::string& path : paths) {
    HEARTH_ASSIGN_OR_RETURN(RoutingProfile profile, ReadProfile(path));
    if (!profiles.empty()) {
      HEARTH_RETURN_IF_ERROR(profile.CheckIdentity(profiles[0].identity, path));
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

absl::Status RunMerge(const ProfileMergeConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(CheckReplaceable(config.out));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RoutingProfile> profiles, ReadProfiles(config.profile));
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile merged, MergeProfiles(profiles));
  HEARTH_RETURN_IF_ERROR(WriteProfile(config.out, merged));
  if (io.json) {
    Json domains = Json::array();
    for (const ProfileDomain& domain : merged.domains) {
      domains.push_back({{"name", domain.name}, {"tokens", domain.token_count}});
    }
    const Json json = {
        {"profile", config.out}, {"tokens", merged.token_count()}, {"domains", std::move(domains)}};
    io.results << json.dump() << "\n";
    return absl::OkStatus();
  }
  io.results << absl::StrFormat("%d profiles, %d domains, %d tokens: %s\n", profiles.size(),
                                merged.domains.size(), merged.token_count(), config.out);
  return absl::OkStatus();
}

std::string LayerName(const RoutingIdentity& id, size_t layer) {
  return layer < id.layer_count ? absl::StrCat(layer) : "MTP";
}

Json DifferenceJson(const ProfileDifference& difference) {
  Json layers = Json::array();
  for (size_t layer = 0; layer < difference.total_variation.size(); ++layer) {
    layers.push_back({{"layer", layer},
                      {"total_variation", difference.total_variation[layer]},
                      {"shared_hot", difference.shared_hot[layer]}});
  }
  return {{"mean_total_variation", difference.mean_total_variation},
          {"mean_shared_hot", difference.mean_shared_hot},
          {"layers", std::move(layers)}};
}

absl::Status RunDiff(const ProfileDiffConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RoutingProfile> profiles, ReadProfiles(config.profile));
  HEARTH_ASSIGN_OR_RETURN(const ProfileDifference difference,
                          DiffProfiles(profiles[0], profiles[1]));
  if (io.json) {
    io.results << DifferenceJson(difference).dump() << "\n";
    return absl::OkStatus();
  }
  io.results << "layer  different traffic  hottest 40% in common\n";
  for (size_t layer = 0; layer < difference.total_variation.size(); ++layer) {
    io.results << absl::StrFormat(
        "%5s  %16.1f%%  %20.1f%%\n", LayerName(profiles[0].identity, layer),
        100 * difference.total_variation[layer], 100 * difference.shared_hot[layer]);
  }
  io.results << absl::StrFormat("%5s  %16.1f%%  %20.1f%%\n", "mean",
                                100 * difference.mean_total_variation,
                                100 * difference.mean_shared_hot);
  return absl::OkStatus();
}

}  // namespace

Command ProfileMergeCommand() {
  return MakeCommand<ProfileMergeConfig>({.name = "profile merge",
                                          .summary = "add profiles of one model up",
                                          .notes = "Domains of the same name become one."},
                                         RunMerge);
}

Command ProfileDiffCommand() {
  return MakeCommand<ProfileDiffConfig>(
      {.name = "profile diff",
       .summary = "how far two profiles of one model lie apart",
       .notes = "Different traffic: the share of route entries that would have to go to other "
                "experts."},
      RunDiff);
}

}  // namespace hearth::cli
