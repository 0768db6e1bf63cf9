// hearth plan: what this machine will do with a model.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "pack/reader/pack.h"
#include "pack/synth/synthetic_geometry.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/compute_config.h"
#include "runtime/engine/profile_file.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/plan/machine_rates.h"
#include "tools/hearth/plan/plan_config.h"
#include "tools/hearth/plan/plan_text.h"
#include "tools/hearth/plan/speed_plan.h"

namespace hearth::cli {
namespace {

absl::StatusOr<std::vector<PlanModel>> ModelsOf(const PlanConfig& config,
                                                const std::optional<Pack>& pack) {
  if (pack.has_value()) return std::vector<PlanModel>{PlanModelOfPack(*pack)};
  HEARTH_ASSIGN_OR_RETURN(const ModelGeometry geometry, GeometryOf(config.model));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Quantisation> list, ParseQuantisations(config.quant));
  std::vector<PlanModel> models;
  for (const Quantisation& quantisation : list) {
    HEARTH_ASSIGN_OR_RETURN(PlanModel model,
                            PlanModelOf(geometry, quantisation.format, quantisation.bits));
    models.push_back(std::move(model));
  }
  return models;
}

absl::StatusOr<HitCurve> HitsOf(const PlanConfig& config, const std::optional<Pack>& pack,
                                const PlanModel& model) {
  if (config.profile.empty()) return HitCurve::Even(model.layer_count, model.expert_count);
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile profile, ReadProfile(config.profile));
  if (pack.has_value()) {
    HEARTH_RETURN_IF_ERROR(profile.CheckIdentity(IdentityOf(pack->manifest), config.profile));
  } else if (profile.identity.layer_count != model.layer_count ||
             profile.identity.expert_count != model.expert_count) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile: ", config.profile, " is of ", profile.identity.layer_count,
                     " layers of ", profile.identity.expert_count, " experts, the model has ",
                     model.layer_count, " of ", model.expert_count));
  }
  return HitCurve::Of(profile);
}

absl::Status Run(const PlanConfig& config, const CommandIo& io) {
  std::optional<Pack> pack;
  if (!config.pack.empty()) {
    HEARTH_ASSIGN_OR_RETURN(pack, Pack::Open(config.pack));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<PlanModel> models, ModelsOf(config, pack));
  HEARTH_ASSIGN_OR_RETURN(const HitCurve hits, HitsOf(config, pack, models.front()));
  PlanReport report = {.model = pack.has_value() ? config.pack : config.model,
                       .from_profile = hits.from_profile()};
  MachineWish wish = {.threads = config.threads,
                      .cpus = config.cpus,
                      .card = config.device != "cpu",
                      .drive = config.drive,
                      .drive_read_bytes = models.front().expert_bytes,
                      .ram_budget = config.ram_budget};
  if (wish.drive.empty() && pack.has_value()) {
    wish.drive = pack->experts.file().path();
  }
  HEARTH_RETURN_IF_ERROR(MeasureMachine(wish, io, report));
  report.machine.context_tokens = config.context_tokens;
  if (config.vram_reserve) report.machine.vram_reserve_bytes = *config.vram_reserve;
  for (const PlanModel& model : models) {
    report.plans.push_back(PlanSpeed(model, report.machine, hits));
  }
  io.results << (io.json ? PlanJson(report) + "\n" : PlanText(report));
  return absl::OkStatus();
}

}  // namespace

Command PlanCommand() {
  return MakeCommand<PlanConfig>(
      {.name = "plan",
       .summary = "what this machine will do with a model",
       .notes = "Measures RAM, the card, its link and the drive (seconds); a model needs no pack: "
                "its shape does.\nThe range of tokens/s is that of what passes take beside their "
                "bytes,\nin part measured, in part estimated, and of the profile's texts."},
      Run);
}

}  // namespace hearth::cli
