#include "tools/hearth/profile_facts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "cache/policy/policy_table.h"
#include "cache/policy/routing_statistics.h"
#include "cache/policy/trace_windows.h"
#include "runtime/base/status.h"

namespace hearth::cli {
namespace {

constexpr std::array<double, 12> kSlotShares = {0.05, 0.10, 0.18, 0.25, 0.34, 0.40,
                                                0.50, 0.60, 0.70, 0.80, 0.90, 1.00};
constexpr std::array<uint32_t, 2> kReplayWindows = {1, 4};

std::vector<double> LayerHotTraffic(const RoutingIdentity& id, std::span<const uint64_t> counts,
                                    double share) {
  std::vector<double> traffic;
  for (uint32_t layer = 0; layer < id.all_layer_count(); ++layer) {
    const std::span<const uint64_t> own = LayerCounts(id, counts, layer);
    const bool any = std::ranges::any_of(own, [](uint64_t n) { return n > 0; });
    traffic.push_back(any ? HotOrder(own).Traffic(own, share)
                          : std::numeric_limits<double>::quiet_NaN());
  }
  return traffic;
}

// The largest domains, in the profile's order.
std::vector<size_t> TableDomains(const RoutingProfile& profile) {
  std::vector<size_t> table(profile.domains.size());
  std::iota(table.begin(), table.end(), size_t{0});
  std::ranges::stable_sort(table, [&](size_t a, size_t b) {
    return profile.domains[a].token_count > profile.domains[b].token_count;
  });
  table.resize(std::min(table.size(), kTableDomainsMax));
  std::ranges::sort(table);
  return table;
}

std::vector<DistinctFacts> DistinctOf(const RouteTrace& trace) {
  std::vector<DistinctFacts> facts;
  for (uint32_t tokens = 1; tokens <= kFactWindowMax; ++tokens) {
    const std::vector<double> layers = DistinctByLayer(trace, tokens);
    if (layers.empty()) break;
    const double sum = std::accumulate(layers.begin(), layers.end(), 0.0);
    facts.push_back(
        {.window_tokens = tokens,
         .mean = sum / static_cast<double>(layers.size()),
         .lowest_layer = *std::ranges::min_element(layers),
         .highest_layer = *std::ranges::max_element(layers),
         .if_even = DistinctIfEven(trace.identity.expert_count, trace.identity.ranks, tokens)});
  }
  return facts;
}

// The beginning of every text, in proportion to its length.
RouteTrace SampleOf(const RouteTrace& trace, uint64_t tokens_max) {
  const uint64_t total = trace.token_count();
  if (total <= tokens_max) return trace;
  const double part = static_cast<double>(tokens_max) / static_cast<double>(total);
  const uint64_t values = uint64_t{trace.identity.layer_count} * trace.identity.ranks;
  RouteTrace sample{.identity = trace.identity};
  for (size_t text = 0; text < trace.text_begins.size(); ++text) {
    const uint64_t begin = trace.text_begins[text];
    const uint64_t end = text + 1 < trace.text_begins.size() ? trace.text_begins[text + 1] : total;
    const auto kept = static_cast<uint64_t>(part * static_cast<double>(end - begin));
    if (kept == 0) continue;
    sample.text_begins.push_back(sample.token_count());
    const auto first = trace.routes.begin() + static_cast<ptrdiff_t>(begin * values);
    sample.routes.insert(sample.routes.end(), first, first + static_cast<ptrdiff_t>(kept * values));
  }
  return sample;
}

// One replay and where its rates go.
struct ReplayJob {
  const PolicyEntry* policy = nullptr;  // null: an oracle
  size_t curve = 0;
  size_t point = 0;
  ReplayOptions options;
};

constexpr std::string_view kStatic = "static";  // by name: the policy table may have one too
constexpr std::string_view kBelady = "belady";

std::vector<std::string> CurveNames() {
  std::vector<std::string> names = {std::string(kStatic), "lru", "two-scale"};
  const std::string first(PolicyTable().front().name);
  if (std::ranges::find(names, first) == names.end()) names.push_back(first);
  names.emplace_back(kBelady);
  return names;
}

ReplayResult RunReplay(const TraceWindows& windows, const ReplayJob& job, std::string_view curve) {
  if (job.policy == nullptr) {
    return curve == kBelady ? ReplayBelady(windows, job.options)
                            : ReplayStaticOracle(windows, job.options);
  }
  return Replay(
      windows, [&](const PoolShape& shape) { return MakePolicy(*job.policy, shape); }, job.options);
}

absl::StatusOr<std::vector<ReplayJob>> JobsOf(const TraceWindows& windows,
                                              const ReplayFacts& facts) {
  std::vector<ReplayJob> jobs;
  for (size_t c = 0; c < facts.curves.size(); ++c) {
    const std::string& name = facts.curves[c].policy;
    const bool oracle = name == kStatic || name == kBelady;
    const PolicyEntry* const policy = oracle ? nullptr : FindPolicy(name);
    for (size_t p = 0; p < facts.slot_counts.size(); ++p) {
      ReplayJob job{.policy = policy, .curve = c, .point = p};
      job.options.slot_count = facts.slot_counts[p];
      if (policy != nullptr) job.options.swaps_per_layer_max = policy->swaps_per_layer_max;
      HEARTH_RETURN_IF_ERROR(CheckReplay(windows, job.options));
      jobs.push_back(job);
    }
  }
  return jobs;
}

absl::StatusOr<ReplayFacts> ReplayAll(const TraceWindows& windows, uint32_t window_tokens,
                                      WorkerTeam& team,
                                      const std::function<void(uint32_t worker)>& on_one) {
  ReplayFacts facts{.window_tokens = window_tokens};
  const double experts = static_cast<double>(windows.layer_count) * windows.expert_count;
  for (const double share : kSlotShares) {
    facts.slot_shares.push_back(share);
    facts.slot_counts.push_back(static_cast<uint64_t>(std::max(1.0, std::floor(share * experts))));
  }
  for (const std::string& name : CurveNames()) {
    facts.curves.push_back({.policy = name,
                            .hit_rate = std::vector<double>(kSlotShares.size()),
                            .entry_hit_rate = std::vector<double>(kSlotShares.size())});
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<ReplayJob> jobs, JobsOf(windows, facts));
  team.ForEach(static_cast<uint32_t>(jobs.size()), [&](uint32_t worker, uint32_t index) {
    const ReplayJob& job = jobs[index];
    HitCurve& curve = facts.curves[job.curve];
    const ReplayResult result = RunReplay(windows, job, curve.policy);
    curve.hit_rate[job.point] = result.hit_rate();
    curve.entry_hit_rate[job.point] = result.entry_hit_rate();
    on_one(worker);
  });
  return facts;
}

}  // namespace

const HitCurve* ReplayFacts::Find(std::string_view policy) const {
  const auto it = std::ranges::find(curves, policy, &HitCurve::policy);
  return it == curves.end() ? nullptr : &*it;
}

DomainFacts FactsOf(const RoutingIdentity& identity, std::string_view name, uint64_t token_count,
                    std::span<const uint64_t> counts) {
  const std::span<const uint64_t> trunk = TrunkCounts(identity, counts);
  const HotOrder order(trunk);
  DomainFacts facts{.name = std::string(name), .token_count = token_count};
  for (size_t i = 0; i < kHotShares.size(); ++i) {
    facts.hot_traffic[i] = order.Traffic(trunk, kHotShares[i]);
  }
  facts.curve = order.Curve(trunk, kCurveSteps);
  return facts;
}

std::vector<DomainFacts> DomainFactsOf(const RoutingProfile& profile) {
  std::vector<DomainFacts> facts;
  for (const ProfileDomain& domain : profile.domains) {
    facts.push_back(FactsOf(profile.identity, domain.name, domain.token_count, domain.counts));
  }
  return facts;
}

ProfileFacts FactsOf(const RoutingProfile& profile) {
  const RoutingIdentity& id = profile.identity;
  const std::vector<uint64_t> counts = profile.Counts();
  ProfileFacts facts{.identity = id};
  facts.all = FactsOf(id, "all texts", profile.token_count(), counts);
  facts.domains = DomainFactsOf(profile);
  facts.layer_hot10 = LayerHotTraffic(id, counts, 0.10);
  facts.layer_hot40 = LayerHotTraffic(id, counts, 0.40);
  facts.table = TableDomains(profile);
  for (const size_t row : facts.table) {
    const std::vector<uint64_t>& own = profile.domains[row].counts;
    const HotOrder order(TrunkCounts(id, own));
    facts.overlap.emplace_back();
    facts.carry.emplace_back();
    for (const size_t column : facts.table) {
      const std::vector<uint64_t>& other = profile.domains[column].counts;
      facts.overlap.back().push_back(OverlapOf(id, own, other));
      facts.carry.back().push_back(order.Traffic(TrunkCounts(id, other), kCarryShare));
    }
  }
  return facts;
}

absl::StatusOr<TraceFacts> FactsOf(const RouteTrace& trace, uint64_t tokens_max, WorkerTeam& team,
                                   const std::function<void(uint64_t done, uint64_t of)>& on_done) {
  const RouteTrace sample = SampleOf(trace, tokens_max);
  TraceFacts facts{.token_count = trace.token_count(),
                   .replayed_token_count = sample.token_count(),
                   .text_count = trace.text_begins.size(),
                   .default_policy = std::string(PolicyTable().front().name),
                   .distinct = DistinctOf(trace)};
  const uint64_t replays = kReplayWindows.size() * kSlotShares.size() * CurveNames().size();
  std::atomic<uint64_t> done{0};
  const auto count_one = [&](uint32_t worker) {
    const uint64_t count = done.fetch_add(1) + 1;
    if (worker == 0) on_done(count, replays);
  };
  for (const uint32_t window_tokens : kReplayWindows) {
    const TraceWindows windows = CutWindows(sample, window_tokens);
    HEARTH_ASSIGN_OR_RETURN(ReplayFacts replay, ReplayAll(windows, window_tokens, team, count_one));
    facts.replays.push_back(std::move(replay));
  }
  return facts;
}

}  // namespace hearth::cli
