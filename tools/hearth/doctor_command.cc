// hearth doctor: what stands in the way on this machine, and what to do about it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

#include "pack/reader/pack.h"
#include "runtime/base/status.h"
#include "runtime/serve/telemetry/telemetry_json.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/doctor/doctor_config.h"
#include "tools/hearth/doctor/findings.h"
#include "tools/hearth/doctor/read_facts.h"
#include "tools/hearth/doctor/telemetry_findings.h"
#include "tools/hearth/plan/machine_rates.h"
#include "tools/hearth/plan/speed_plan.h"
#include "tools/hearth/top/telemetry_source.h"

namespace hearth::cli {
namespace {

// The last snapshot of a recording, the next one of a server.
absl::StatusOr<TelemetrySnapshot> ReadTelemetry(const DoctorConfig& config) {
  const bool is_url =
      absl::StrContains(config.telemetry, "://") || absl::StartsWith(config.telemetry, "unix:");
  std::unique_ptr<TelemetrySource> source;
  if (is_url) {
    HttpSourceOptions options = {.url = config.telemetry};
    if (!config.key_file.empty()) {
      HEARTH_ASSIGN_OR_RETURN(options.key, ReadKeyFile(config.key_file));
    }
    HEARTH_ASSIGN_OR_RETURN(source, OpenHttpSource(options));
  } else {
    HEARTH_ASSIGN_OR_RETURN(source, OpenReplaySource(config.telemetry));
  }
  HEARTH_ASSIGN_OR_RETURN(std::string json, source->Next());
  while (!is_url) {
    absl::StatusOr<std::string> next = source->Next();
    if (!next.ok()) break;
    json = *std::move(next);
  }
  return ParseTelemetry(json);
}

// What would be planned for the pack with the rates that the server measured, or else the doctor.
std::optional<SpeedPlan> PlanFor(const DoctorFacts& facts, const TelemetrySnapshot& snapshot) {
  if (!facts.pack.has_value() || !facts.pack->open.ok()) return std::nullopt;
  const absl::StatusOr<Pack> pack = Pack::Open(facts.pack->dir);
  if (!pack.ok()) return std::nullopt;
  const auto rate = [&](Channel channel, double otherwise) {
    return snapshot.facts.max_bytes_per_sec[static_cast<uint32_t>(channel)].value_or(otherwise);
  };
  PlanMachine machine;
  machine.rates = {.dram = rate(Channel::kDram, facts.cpu.read_bytes_per_sec),
                   .card = rate(Channel::kCard, 0),
                   .link = rate(Channel::kLink, 0),
                   .drive = rate(Channel::kDrive, facts.pack->read_bytes_per_sec)};
  machine.ram_bytes = facts.memory.available ? facts.memory.available->available_bytes : 0;
  // The server has taken its part already.
  machine.ram_bytes += snapshot.process.ram_bytes.value_or(0);
  machine.card_bytes = machine.rates.card > 0 ? snapshot.facts.card_bytes : 0;
  machine.context_tokens = snapshot.facts.context_tokens_max;
  const PlanModel model = PlanModelOfPack(*pack);
  return PlanSpeed(model, machine, HitCurve::Even(model.layer_count, model.expert_count));
}

absl::Status Run(const DoctorConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const DoctorFacts facts,
                          ReadDoctorFacts({.pack = config.pack, .deep = config.deep}, io));
  std::vector<Finding> findings = Diagnose(facts);
  if (!config.telemetry.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const TelemetrySnapshot snapshot, ReadTelemetry(config));
    const std::vector<Finding> more = CompareWithTelemetry(snapshot, PlanFor(facts, snapshot));
    findings.insert(findings.end(), more.begin(), more.end());
  }
  io.results << (io.json ? FindingsJson(findings) + "\n" : FindingsText(findings));
  return VerdictOf(findings, config.strict ? Severity::kWarning : Severity::kFailure);
}

}  // namespace

Command DoctorCommand() {
  return MakeCommand<DoctorConfig>(
      {.name = "doctor",
       .summary = "what stands in the way on this machine, with remedies",
       .notes =
           "Findings are ok, advice (works, could be faster), warning (a fallback), failure or "
           "damage. The exit\ncode is that of the worst: 1 for a failure, 3 for damage, with "
           "--strict 1 for a warning."},
      Run);
}

}  // namespace hearth::cli
