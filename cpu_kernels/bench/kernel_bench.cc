#include "cpu_kernels/bench/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/bench/bench_data.h"
#include "cpu_kernels/bench/read_probe.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kMemoryBytesMin = 1_MiB;
constexpr uint64_t kCacheCasesBytesEach = 32_MiB;  // for every worker's largest item
constexpr uint64_t kTileBytes = 1_MiB;
constexpr uint64_t kJobsMax = 1u << 20;
constexpr int64_t kProbeShare = 2;  // a probe's sample is this part of a case's

double Median(std::vector<double> values) {
  HEARTH_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Half the distance between the quartiles, over the median.
double Spread(std::vector<double> values) {
  const double median = Median(values);
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return median > 0 ? (values[n - 1 - n / 4] - values[n / 4]) / 2 / median : 0;
}

}  // namespace

std::string_view ResidenceName(Residence residence) {
  return residence == Residence::kCache ? "cache" : "dram";
}

std::string_view MemoryLevelName(MemoryLevel level) {
  switch (level) {
    case MemoryLevel::kL1:
      return "L1";
    case MemoryLevel::kL2:
      return "L2";
    case MemoryLevel::kL3:
      return "L3";
    case MemoryLevel::kDram:
      return "DRAM";
  }
  return "unknown";
}

MemoryLevel LevelOf(const CacheBytes& caches, uint64_t bytes_each, uint32_t worker_count) {
  if (bytes_each <= caches.l1d) return MemoryLevel::kL1;
  if (bytes_each <= caches.l2) return MemoryLevel::kL2;
  if (bytes_each * worker_count <= caches.l3) return MemoryLevel::kL3;
  return MemoryLevel::kDram;
}

double CaseResult::bytes_per_sec() const {
  return run_ns > 0 ? static_cast<double>(facts.moved_bytes) * 1e9 / run_ns : 0;
}

double CaseResult::read_fraction() const {
  return read_bytes_per_sec > 0 ? bytes_per_sec() / read_bytes_per_sec : 0;
}

double CaseResult::weights_per_sec() const {
  return run_ns > 0 ? static_cast<double>(facts.weight_count) * 1e9 / run_ns : 0;
}

// One case, ready to run: where its items lie and how often a sample runs them.
struct KernelBench::Case {
  CaseResult result;
  const CpuKernels* kernels = nullptr;
  WorkerTeam* team = nullptr;
  std::shared_ptr<const KernelWorkload> workload{};
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint64_t in_stride_bytes = 0;
  uint64_t out_stride_bytes = 0;
  uint64_t item_count = 0;
  uint64_t cursor = 0;  // of a walk: the next item
  uint64_t jobs = 1;    // of one sample
  uint64_t runs_per_job = 1;
  size_t probe = 0;
  double best_sample_ns = HUGE_VAL;
  std::vector<double> run_ns{};
  std::vector<double> rates{};

  bool measured() const { return result.not_measured.empty(); }
  BenchItem Item(uint64_t index) const {
    return {in + index * in_stride_bytes, out + index * out_stride_bytes};
  }
};

struct KernelBench::ProbeOf {
  ReadProbe probe;
  const WorkerTeam* team;
  uint64_t bytes_each;  // zero: a walk
  double rate = 0;      // of this round
};

KernelBench::KernelBench(const KernelBenchOptions& options, std::span<WorkerTeam* const> teams,
                         Clock& clock, AnonymousMapping arena)
    : options_(options),
      teams_(teams.begin(), teams.end()),
      clock_(clock),
      arena_(std::move(arena)) {}

KernelBench::~KernelBench() = default;

absl::StatusOr<std::unique_ptr<KernelBench>> KernelBench::Create(const KernelBenchOptions& options,
                                                                 std::span<WorkerTeam* const> teams,
                                                                 uint64_t available_bytes,
                                                                 Clock& clock) {
  HEARTH_CHECK(!options.kernels.empty() && !options.rows.empty() && !options.residences.empty() &&
               !teams.empty() && options.sample_count_min > 0);
  if (options.memory_bytes < kMemoryBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat("memory: ", FormatBytes(options.memory_bytes),
                                                   " is less than ", FormatBytes(kMemoryBytesMin)));
  }
  const bool walks = std::ranges::count(options.residences, Residence::kDram) > 0;
  uint64_t workers = 0;
  for (const WorkerTeam* team : teams) workers = std::max<uint64_t>(workers, team->worker_count());
  const uint64_t bytes =
      walks ? options.memory_bytes : std::min(options.memory_bytes, workers * kCacheCasesBytesEach);
  if (bytes > available_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: ", FormatBytes(bytes), " of weights wanted, but only ",
                     FormatBytes(available_bytes), " are available"));
  }
  HEARTH_ASSIGN_OR_RETURN(AnonymousMapping arena, AnonymousMapping::Create(bytes));
  std::unique_ptr<KernelBench> bench(new KernelBench(options, teams, clock, std::move(arena)));
  bench->FillArena({.fill = FillFloats}, {});
  return bench;
}

// Weights: the first item, and copies of it in the place of every other. Anything else: the same
// fp32 values all over, which any layout of items can be cut from.
void KernelBench::FillArena(const KernelFamily& family, const WorkloadFacts& facts) {
  const std::span<std::byte> all = arena_.data();
  const uint64_t tile_bytes =
      std::min<uint64_t>(facts.weight_count > 0 ? facts.in_bytes : kTileBytes, all.size());
  family.fill(all.first(tile_bytes));
  const auto tiles = static_cast<uint32_t>((all.size() + tile_bytes - 1) / tile_bytes);
  teams_.back()->ForRanges(tiles, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
    for (uint64_t i = std::max(begin, 1u); i < end; ++i) {
      const uint64_t at = i * tile_bytes;
      std::memcpy(all.data() + at, all.data(), std::min(tile_bytes, all.size() - at));
    }
  });
}

std::vector<ReadRate> KernelBench::MeasureReadRates() {
  const Isa isa = options_.kernels.front()->isa;
  std::vector<ReadRate> rates;
  std::vector<ProbeOf> probes;
  const CacheBytes& caches = options_.caches;
  for (WorkerTeam* const team : teams_) {
    const uint64_t workers = team->worker_count();
    const uint64_t l3_each = std::max(caches.l3 / workers / 2, caches.l2 * 2);
    for (const uint64_t bytes_each : {caches.l1d / 2, caches.l2 / 2, l3_each, uint64_t{0}}) {
      const MemoryLevel level =
          bytes_each == 0 ? MemoryLevel::kDram : LevelOf(caches, bytes_each, team->worker_count());
      const bool again = !rates.empty() && rates.back().level == level &&
                         rates.back().thread_count == team->worker_count();
      if (again || bytes_each * workers > arena_.data().size()) continue;
      rates.push_back({level, team->worker_count(), 0});
      probes.push_back({bytes_each == 0
                            ? ReadProbe::OfWalk(*team, clock_, isa, arena_.data())
                            : ReadProbe::OfLoop(*team, clock_, isa, arena_.data(), bytes_each),
                        team, bytes_each});
      probes.back().probe.Calibrate(options_.sample_ns());
    }
  }
  std::vector<std::vector<double>> samples(rates.size());
  for (uint32_t i = 0; i < options_.sample_count_min; ++i) {
    for (size_t p = 0; p < probes.size(); ++p) samples[p].push_back(probes[p].probe.Sample());
  }
  for (size_t p = 0; p < rates.size(); ++p) rates[p].bytes_per_sec = Median(samples[p]);
  return rates;
}

uint64_t KernelBench::CaseCount(const KernelFamily& family) const {
  return (family.rows_matter ? options_.rows.size() : 1) * options_.kernels.size() *
         options_.residences.size() * teams_.size();
}

// `wanted` says which case; the rest of it follows.
KernelBench::Case KernelBench::MakeCase(const KernelFamily& family, Case c, uint64_t out_offset) {
  c.workload = family.make(c.result.rows, c.team->worker_count());
  const WorkloadFacts& facts = c.workload->facts();
  const uint64_t workers = c.team->worker_count();
  c.result.facts = facts;
  c.in = arena_.data().data();
  c.out = c.in + out_offset;
  c.in_stride_bytes = facts.in_bytes;
  c.out_stride_bytes = facts.out_bytes;
  c.item_count = UINT32_MAX;
  if (facts.in_bytes > 0) c.item_count = std::min(c.item_count, out_offset / facts.in_bytes);
  if (facts.out_bytes > 0) {
    c.item_count = std::min(c.item_count, (arena_.data().size() - out_offset) / facts.out_bytes);
  }
  const uint64_t bytes_each =
      c.workload->splits() ? (facts.touched_bytes + workers - 1) / workers : facts.touched_bytes;
  c.result.level = LevelOf(options_.caches, bytes_each, c.team->worker_count());
  c.runs_per_job = facts.runs_per_job;
  uint64_t items_least = c.workload->splits() ? 1 : workers;
  if (c.result.residence == Residence::kDram) {
    c.result.level = MemoryLevel::kDram;
    if (!c.workload->splits()) c.runs_per_job *= workers;
    c.runs_per_job = std::min(c.runs_per_job, std::max<uint64_t>(c.item_count, 1));
    items_least = std::max<uint64_t>(items_least, 2);
  } else if (!c.workload->splits()) {
    c.runs_per_job *= workers;
  }
  if (c.item_count < items_least) {
    const uint64_t needed = items_least * (facts.in_bytes + facts.out_bytes);
    c.result.not_measured = absl::StrCat("needs --memory ", FormatBytes(AlignUp(needed, 1_MiB)));
  }
  return c;
}

std::vector<KernelBench::Case> KernelBench::MakeCases(const KernelFamily& family) {
  const std::unique_ptr<KernelWorkload> first = family.make(options_.rows.front(), 1);
  const WorkloadFacts& facts = first->facts();
  // One border between what is read and what is written, whatever the number of rows.
  const uint64_t item_bytes = facts.in_bytes + facts.out_bytes;
  const auto in_part = static_cast<unsigned __int128>(arena_.data().size()) * facts.in_bytes;
  const auto out_offset = static_cast<uint64_t>(in_part / item_bytes) / kLineBytes * kLineBytes;
  FillArena(family, facts);
  std::vector<Case> cases;
  for (const CpuKernels* kernels : options_.kernels) {
    for (const uint32_t rows : options_.rows) {
      if (!family.rows_matter && rows != options_.rows.front()) continue;
      for (const Residence residence : options_.residences) {
        for (WorkerTeam* const team : teams_) {
          Case c{.kernels = kernels, .team = team};
          c.result.isa = kernels->isa;
          c.result.rows = family.rows_matter ? rows : 1;
          c.result.residence = residence;
          c.result.thread_count = team->worker_count();
          cases.push_back(MakeCase(family, std::move(c), out_offset));
        }
      }
    }
  }
  return cases;
}

// Cases of the same workers and the same extent share a probe.
std::vector<KernelBench::ProbeOf> KernelBench::MakeProbes(std::vector<Case>* cases) {
  std::vector<ProbeOf> probes;
  for (Case& c : *cases) {
    if (!c.measured()) continue;
    const WorkloadFacts& facts = c.result.facts;
    const uint64_t workers = c.workload->splits() ? c.team->worker_count() : 1;
    const uint64_t bytes_each =
        c.result.residence == Residence::kDram ? 0 : (facts.touched_bytes + workers - 1) / workers;
    const auto same = [&](const ProbeOf& p) {
      return p.team == c.team && p.bytes_each == bytes_each;
    };
    const auto found = std::ranges::find_if(probes, same);
    c.probe = static_cast<size_t>(found - probes.begin());
    if (found != probes.end()) continue;
    const Isa isa = options_.kernels.front()->isa;
    probes.push_back({bytes_each == 0
                          ? ReadProbe::OfWalk(*c.team, clock_, isa, arena_.data())
                          : ReadProbe::OfLoop(*c.team, clock_, isa, arena_.data(), bytes_each),
                      c.team, bytes_each});
    probes.back().probe.Calibrate(std::max<int64_t>(options_.sample_ns() / kProbeShare, 1));
  }
  return probes;
}

// The runs between two barriers. In a cache, each worker repeats its share of one item, or its own
// item; in a walk, the next items are divided among all.
void KernelBench::RunJob(Case* c) {
  const KernelWorkload& workload = *c->workload;
  const uint32_t shares = std::max(workload.facts().share_count, 1u);
  const uint32_t workers = c->team->worker_count();
  if (c->result.residence == Residence::kCache) {
    const bool splits = workload.splits();
    const uint64_t repeats = splits ? c->runs_per_job : c->runs_per_job / workers;
    c->team->ForRanges(splits ? shares : workers, 1,
                       [&](uint32_t worker, uint32_t begin, uint32_t end) {
                         BenchItem item = c->Item(splits ? 0 : worker);
                         item.next_in = item.in;
                         item.next_begin = begin;
                         for (uint64_t i = 0; i < repeats; ++i) {
                           workload.Run(*c->kernels, item, worker, begin, end);
                         }
                       });
    return;
  }
  const auto units = static_cast<uint32_t>(c->runs_per_job * shares);
  c->team->ForRanges(units, 1, [&](uint32_t worker, uint32_t begin, uint32_t end) {
    for (uint32_t unit = begin; unit < end;) {
      const uint32_t run = unit / shares;
      const uint32_t stop = std::min(end, (run + 1) * shares);
      BenchItem item = c->Item((c->cursor + run) % c->item_count);
      if (stop < end) item.next_in = c->Item((c->cursor + run + 1) % c->item_count).in;
      workload.Run(*c->kernels, item, worker, unit - run * shares, stop - run * shares);
      unit = stop;
    }
  });
  c->cursor = (c->cursor + c->runs_per_job) % c->item_count;
}

void KernelBench::Calibrate(Case* c) {
  RunJob(c);
  c->jobs = 0;
  int64_t elapsed_ns = 0;
  const int64_t start_ns = clock_.NowNs();
  while (elapsed_ns < options_.sample_ns() / 4 && c->jobs < kJobsMax) {
    RunJob(c);
    ++c->jobs;
    elapsed_ns = clock_.NowNs() - start_ns;
  }
  const double jobs = static_cast<double>(c->jobs) * static_cast<double>(options_.sample_ns()) /
                      static_cast<double>(std::max<int64_t>(elapsed_ns, 1));
  c->jobs = std::clamp<uint64_t>(static_cast<uint64_t>(jobs), 1, kJobsMax);
}

void KernelBench::TakeSample(Case* c, double read_bytes_per_sec) {
  RunJob(c);  // brings a cache back to this case's data
  const int64_t start_ns = clock_.NowNs();
  for (uint64_t i = 0; i < c->jobs; ++i) RunJob(c);
  const auto elapsed_ns = static_cast<double>(std::max<int64_t>(clock_.NowNs() - start_ns, 1));
  const double run_ns = elapsed_ns / static_cast<double>(c->jobs * c->runs_per_job);
  c->run_ns.push_back(run_ns);
  c->best_sample_ns = std::min(c->best_sample_ns, elapsed_ns);
  c->rates.push_back(read_bytes_per_sec);
}

bool KernelBench::Done(const Case& c) const {
  return c.run_ns.size() >= options_.sample_count_min &&
         c.best_sample_ns * static_cast<double>(c.run_ns.size()) >=
             static_cast<double>(options_.case_ns);
}

std::vector<CaseResult> KernelBench::Measure(const KernelFamily& family,
                                             const std::function<void(uint64_t)>& progress) {
  std::vector<Case> cases = MakeCases(family);
  std::vector<ProbeOf> probes = MakeProbes(&cases);
  for (Case& c : cases) {
    if (c.measured()) Calibrate(&c);
  }
  for (uint32_t round = 0; round < options_.sample_count_max; ++round) {
    for (ProbeOf& p : probes) p.rate = p.probe.Sample();
    for (Case& c : cases) {
      if (c.measured() && !Done(c)) TakeSample(&c, probes[c.probe].rate);
    }
    progress(cases.size() * (round + 1) / options_.sample_count_max);
  }
  std::vector<CaseResult> results;
  for (Case& c : cases) {
    if (c.measured()) {
      c.result.sample_count = static_cast<uint32_t>(c.run_ns.size());
      c.result.run_ns = Median(c.run_ns);
      c.result.best_run_ns = std::ranges::min(c.run_ns);
      c.result.spread = Spread(c.run_ns);
      c.result.read_bytes_per_sec = Median(c.rates);
    }
    results.push_back(std::move(c.result));
  }
  return results;
}

}  // namespace hearth
