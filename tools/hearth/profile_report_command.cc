// hearth profile report: a profile, and a trace of the same model, as text and as a page.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"
#include "runtime/config/profile_config.h"
#include "runtime/engine/profile_file.h"
#include "runtime/engine/trace_file.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/profile_facts.h"
#include "tools/hearth/profile_page.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

// Traces have no MTP layer, and imported ones no hashes: the shape of the trunk must agree, and the
// hashes where there are any.
absl::Status CheckSameModel(const RoutingIdentity& profile, const RoutingIdentity& trace,
                            const std::string& path) {
  RoutingIdentity expected = profile;
  RoutingIdentity found = trace;
  expected.has_mtp = found.has_mtp = false;
  if (found.model_xxh3_128.empty()) expected.model_xxh3_128.clear();
  if (found.tokenizer_xxh3_128.empty()) expected.tokenizer_xxh3_128.clear();
  if (expected == found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": is a trace of another model than the profile: expected ",
                   profile.ToString(), "; found ", trace.ToString()));
}

absl::StatusOr<TraceFacts> ReplayTrace(const ProfileReportConfig& config,
                                       const RoutingIdentity& identity, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const RouteTrace trace, ReadTrace(config.trace));
  HEARTH_RETURN_IF_ERROR(CheckSameModel(identity, trace.identity, config.trace));
  HEARTH_ASSIGN_OR_RETURN(const Workers workers, Workers::Start(0, "", io.allowed_cpus));
  const uint64_t tokens_max = config.trace_tokens_max == 0 ? UINT64_MAX : config.trace_tokens_max;
  std::optional<Progress> line;
  absl::StatusOr<TraceFacts> facts =
      FactsOf(trace, tokens_max, *workers.team, [&](uint64_t done, uint64_t of) {
        if (!line) {
          line.emplace(
              io, ProgressOptions{.label = "replaying", .unit = ProgressUnit::kCases, .total = of});
        }
        line->Update(done);
      });
  if (!facts.ok()) return Annotate(facts.status(), config.trace);
  return facts;
}

absl::Status Run(const ProfileReportConfig& config, const CommandIo& io) {
  if (!config.out.empty()) HEARTH_RETURN_IF_ERROR(CheckReplaceable(config.out));
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile profile, ReadProfile(config.profile));
  ProfileFacts facts = FactsOf(profile);
  if (!config.trace.empty()) {
    HEARTH_ASSIGN_OR_RETURN(facts.trace, ReplayTrace(config, profile.identity, io));
  }
  if (!config.out.empty()) {
    HEARTH_RETURN_IF_ERROR(ReplaceFile(config.out, ProfilePage(profile, facts)));
    io.talk << "wrote " << config.out << "\n";
  }
  if (io.json) {
    io.results << FactsJson(facts).dump() << "\n";
  } else {
    PrintFacts(facts, io.results);
  }
  return absl::OkStatus();
}

}  // namespace

Command ProfileReportCommand() {
  return MakeCommand<ProfileReportConfig>(
      {.name = "profile report",
       .summary = "what a profile says, as text and as an HTML page",
       .notes = "The page needs no network and no other file."},
      Run);
}

}  // namespace hearth::cli
