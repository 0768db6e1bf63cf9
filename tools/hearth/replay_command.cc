// hearth replay: what a policy would have made of a trace.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "cache/policy/policy_table.h"
#include "cache/policy/replay.h"
#include "cache/policy/route_trace.h"
#include "cache/policy/synthetic_trace.h"
#include "cache/policy/trace_windows.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/replay_config.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/replay_report.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTraceBytesMax = 4_GiB;
constexpr uint64_t kSyntheticTokens = 24'576;
// Routes and windows of a trace are in memory: 48 layers x 10 ranks of a million tokens are 1 GiB
// and, at windows of 1, four times that.
constexpr uint64_t kRoutesMax = uint64_t{1} << 29;

absl::StatusOr<RouteTrace> TraceOf(const ReplayConfig& config) {
  if (!config.trace.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(config.trace, kTraceBytesMax));
    return RouteTrace::Parse(std::as_bytes(std::span(bytes)), config.trace);
  }
  const SyntheticTraceShape shape{
      .layer_count = config.layers,
      .token_count = config.tokens == 0 ? kSyntheticTokens : config.tokens};
  const uint64_t per_token = uint64_t{shape.layer_count} * shape.ranks;
  if (shape.token_count > kRoutesMax / per_token) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: found ", shape.token_count,
                                                   ", expected at most ", kRoutesMax / per_token,
                                                   " of ", shape.layer_count, " layers"));
  }
  const bool diffuse = config.synthetic == "diffuse";
  return MakeSyntheticTrace(diffuse ? DiffuseRouting() : StickyRouting(), shape);
}

absl::StatusOr<std::vector<const PolicyEntry*>> PoliciesOf(const ReplayConfig& config) {
  std::vector<const PolicyEntry*> policies;
  if (config.policy.empty()) {
    for (const PolicyEntry& entry : PolicyTable()) policies.push_back(&entry);
  }
  for (const std::string& name : SplitCommas(config.policy)) {
    const PolicyEntry* const entry = FindPolicy(name);
    if (entry == nullptr) return CreatePolicy(name, {}).status();  // lists the names
    policies.push_back(entry);
  }
  return policies;
}

// One replay: a row to fill, and how.
struct Job {
  ReplayRow row;
  const PolicyEntry* policy = nullptr;  // null: an oracle
  ReplayOptions options;
};

uint64_t SlotsOf(const SlotsChoice& choice, const TraceWindows& windows, bool per_layer) {
  if (choice.count > 0) return choice.count;
  const double experts = windows.expert_count;  // a share is rounded down within each layer
  if (!per_layer) return static_cast<uint64_t>(choice.share * experts * windows.layer_count);
  return static_cast<uint64_t>(choice.share * experts) * windows.layer_count;
}

absl::StatusOr<std::vector<Job>> JobsOf(const ReplayConfig& config, uint32_t window_tokens,
                                        const TraceWindows& windows) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<const PolicyEntry*> policies, PoliciesOf(config));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<SlotsChoice> slots, ParseSlotsList(config.slots));
  const double experts = static_cast<double>(windows.layer_count) * windows.expert_count;
  std::vector<Job> jobs;
  for (const SlotsChoice& choice : slots) {
    Job job;
    job.options = {.slot_count = SlotsOf(choice, windows, config.per_layer),
                   .pooled = !config.per_layer,
                   .warm_up_share = config.warm_up,
                   .profile_share = config.seed_share,
                   .layer_slots_min = config.layer_slots_min};
    HEARTH_RETURN_IF_ERROR(CheckReplay(windows, job.options));
    job.row = {.window_tokens = window_tokens,
               .slot_count = job.options.slot_count,
               .slot_share = static_cast<double>(job.options.slot_count) / experts,
               .oracle = true};
    for (const char* name : {"belady", "static-oracle"}) {
      job.row.policy = name;
      jobs.push_back(job);
    }
    job.row.oracle = false;
    for (const PolicyEntry* policy : policies) {
      job.policy = policy;
      job.row.policy = policy->name;
      job.options.swaps_per_layer_max = static_cast<uint32_t>(std::min<uint64_t>(
          config.swaps_per_layer_max.value_or(policy->swaps_per_layer_max), windows.expert_count));
      job.row.swaps_per_layer_max = job.options.swaps_per_layer_max;
      job.options.profile_share = config.seed_share;
      // A static list without a profile would be a list of nothing.
      if (policy->heat == HeatKind::kSeeded && config.seed_share == 0) {
        job.options.profile_share = config.warm_up;
      }
      jobs.push_back(job);
    }
  }
  return jobs;
}

void RunJob(const TraceWindows& windows, Clock& clock, Job& job) {
  const int64_t start_ns = clock.NowNs();
  if (job.policy != nullptr) {
    const auto make = [&](const PoolShape& shape) { return MakePolicy(*job.policy, shape); };
    job.row.result = Replay(windows, make, job.options);
  } else if (job.row.policy == "belady") {
    job.row.result = ReplayBelady(windows, job.options);
  } else {
    job.row.result = ReplayStaticOracle(windows, job.options);
  }
  job.row.ns = clock.NowNs() - start_ns;
}

// What each row is held against; LRU is replayed besides when nobody asked for it.
void Compare(const TraceWindows& windows, std::span<Job> jobs) {
  for (Job& job : jobs) {
    const auto rate_of = [&](std::string_view policy) {
      const auto same = std::ranges::find_if(jobs, [&](const Job& other) {
        return other.row.policy == policy && other.row.slot_count == job.row.slot_count;
      });
      if (same != jobs.end()) return same->row.result.hit_rate();
      ReplayOptions options = job.options;
      options.swaps_per_layer_max = 0;
      const PolicyEntry* const entry = FindPolicy(policy);
      const auto make = [&](const PoolShape& shape) { return MakePolicy(*entry, shape); };
      return Replay(windows, make, options).hit_rate();
    };
    job.row.belady_hit_rate = rate_of("belady");
    job.row.lru_hit_rate = rate_of("lru");
  }
}

struct Replayed {
  std::vector<ReplayRow> rows;
  uint64_t window_count = 0;  // of all replays, warm-up included
  int64_t ns = 0;
};

absl::StatusOr<Replayed> RunAll(const ReplayConfig& config, const RouteTrace& trace,
                                const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const Workers workers,
                          Workers::Start(config.threads, "", io.allowed_cpus));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<uint32_t> window_list, ParseWindowList(config.window));
  const int64_t start_ns = io.clock.NowNs();
  Replayed replayed;
  for (size_t i = 0; i < window_list.size(); ++i) {
    const TraceWindows windows =
        CutWindows(trace, window_list[i], config.tokens == 0 ? UINT64_MAX : config.tokens);
    HEARTH_ASSIGN_OR_RETURN(std::vector<Job> jobs, JobsOf(config, window_list[i], windows));
    Progress line(io, {.label = absl::StrFormat("replaying windows of %d", window_list[i]),
                       .unit = ProgressUnit::kCases,
                       .total = jobs.size()});
    std::atomic<uint64_t> done{0};
    workers.team->ForEach(static_cast<uint32_t>(jobs.size()), [&](uint32_t worker, uint32_t job) {
      RunJob(windows, io.clock, jobs[job]);
      const uint64_t count = done.fetch_add(1) + 1;
      if (worker == 0) line.Update(count);
    });
    Compare(windows, jobs);
    replayed.window_count += windows.window_count() * jobs.size();
    for (Job& job : jobs) replayed.rows.push_back(std::move(job.row));
  }
  replayed.ns = io.clock.NowNs() - start_ns;
  return replayed;
}

absl::Status Run(const ReplayConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(PoliciesOf(config).status());
  HEARTH_ASSIGN_OR_RETURN(const RouteTrace trace, TraceOf(config));
  HEARTH_ASSIGN_OR_RETURN(const Replayed replayed, RunAll(config, trace, io));
  const double seconds = static_cast<double>(replayed.ns) * 1e-9;
  const double per_minute = static_cast<double>(replayed.window_count) / seconds * 60;
  const RoutingIdentity& identity = trace.identity;
  const std::string name = config.trace.empty() ? config.synthetic : config.trace;
  if (io.json) {
    const Json json = {{"trace", name},
                       {"tokens", trace.token_count()},
                       {"texts", trace.text_begins.size()},
                       {"layers", identity.layer_count},
                       {"experts", identity.expert_count},
                       {"ranks", identity.ranks},
                       {"pooled", !config.per_layer},
                       {"warm_up", config.warm_up},
                       {"windows_per_minute", per_minute},
                       {"results", ReplayJson(replayed.rows, config.expert_bytes)}};
    io.results << json.dump() << "\n";
    return absl::OkStatus();
  }
  if (config.csv) {
    PrintReplayCsv(replayed.rows, config.expert_bytes, io.results);
  } else {
    PrintReplayTable(replayed.rows, config.expert_bytes, io.results);
  }
  io.talk << absl::StrFormat(
      "%s: %d tokens of %d texts, %d layers x %d experts, %d per token; %s\n"
      "%d windows in %.1f s: %.2f million windows a minute\n",
      name, trace.token_count(), trace.text_begins.size(), identity.layer_count,
      identity.expert_count, identity.ranks,
      config.per_layer ? "slots per layer" : "one pool of all layers", replayed.window_count,
      seconds, per_minute * 1e-6);
  return absl::OkStatus();
}

}  // namespace

Command ReplayCommand() {
  return MakeCommand<ReplayConfig>(
      {.name = "replay",
       .summary = "what a cache policy would have made of a trace",
       .notes = absl::StrCat("Policies: ", absl::StrJoin(PolicyNames(), ", "),
                             ".\nBeside them: belady and static-oracle, which know the trace. "
                             "Gap closed: from LRU to Belady.")},
      Run);
}

}  // namespace hearth::cli
