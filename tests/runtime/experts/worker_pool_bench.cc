// WorkerTeam against oneTBB's task arena on jobs as short as those of decoding: real expert rows,
// split over all workers, 5 to 200 us each, back to back and after a pause; and what each costs
// while it has nothing to do. The contestants take turns within one run.
//   build/release/tests/runtime/experts/worker_pool_bench [WORKERS]
#include <poll.h>
#include <sys/resource.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpus.h"
#include "runtime/base/prng.h"
#include "runtime/base/worker_team.h"
#include "runtime/topology/machine.h"
#include "runtime/topology/worker_binding.h"
#include "runtime/topology/worker_plan.h"

namespace hearth {
namespace {

constexpr uint32_t kCols = 640;  // of the down matrix of Flash-Next; its 40 bands stay in cache

// Bands of a down matrix times one row: the unit of work, about a quarter of a microsecond.
class Work {
 public:
  Work(const CpuKernels& kernels, uint32_t worker_count)
      : kernels_(kernels),
        layout_{.format = ExpertFormat::kNvfp4, .hidden = kCols, .width = kCols},
        blob_(layout_.blob_bytes()),
        y_(size_t{worker_count} * kCols) {
    Prng prng(1);
    for (std::byte& b : blob_) b = static_cast<std::byte>(prng.Below(0x78));
    std::vector<float> x(kCols);
    for (float& v : x) v = static_cast<float>(prng.Uniform());
    const uint32_t blocks = ActivationBlocks(kCols);
    q_.resize(kCols);
    scale_.resize(blocks);
    sum16_.resize(blocks * 2);
    kernels.quantize_rows.fn({.x = x.data(),
                              .x_stride = kCols,
                              .rows = 1,
                              .cols = kCols,
                              .q = q_.data(),
                              .scale = scale_.data(),
                              .sum16 = sum16_.data()});
  }
  void Run(uint32_t worker, uint32_t begin, uint32_t end) {
    const uint32_t bands = BandCount(kCols);
    while (begin < end) {
      const uint32_t first = begin % bands;
      const uint32_t count = std::min(end - begin, bands - first);
      kernels_.expert_down.fn({.layout = &layout_,
                               .blob = blob_.data(),
                               .hq = {q_.data(), scale_.data(), sum16_.data(), 1, kCols},
                               .rows = 1,
                               .y = y_.data() + size_t{worker} * kCols,
                               .y_stride = kCols,
                               .band_begin = first,
                               .band_end = first + count});
      begin += count;
    }
  }

 private:
  const CpuKernels& kernels_;
  ExpertLayout layout_;
  std::vector<std::byte> blob_;
  std::vector<int8_t> q_;
  std::vector<float> scale_;
  std::vector<int32_t> sum16_;
  std::vector<float> y_;
};

struct Contestant {
  std::string name;
  std::function<void(uint32_t units)> run;  // one job
  std::vector<int64_t> ns{};                // of its jobs
};

double Quantile(std::vector<int64_t> ns, double q) {
  std::sort(ns.begin(), ns.end());
  return static_cast<double>(ns[static_cast<size_t>(q * static_cast<double>(ns.size() - 1))]) *
         1e-3;
}

int64_t CpuNs() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000LL + t.tv_usec * 1000LL; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

void Table(const char* title, std::vector<Contestant>& contestants) {
  std::printf("%-28s", title);
  for (Contestant& c : contestants) {
    std::printf("  %s %.1f / %.1f", c.name.c_str(), Quantile(c.ns, 0.5), Quantile(c.ns, 0.99));
    c.ns.clear();
  }
  std::printf("\n");
}

void Compare(std::vector<Contestant>& contestants, uint32_t worker_count, double unit_ns) {
  SteadyClock clock;
  for (const uint32_t job_us : {5u, 20u, 50u, 100u, 200u}) {
    const auto units = static_cast<uint32_t>(job_us * 1e3 * worker_count / unit_ns);
    const uint32_t jobs = 20'000 / job_us;
    for (uint32_t turn = 0; turn < 20; ++turn) {
      for (Contestant& c : contestants) {
        for (uint32_t i = 0; i < jobs / 20 + 3; ++i) {
          const int64_t start = clock.NowNs();
          c.run(units);
          if (i >= 3) c.ns.push_back(clock.NowNs() - start);  // the first ones wake the workers
        }
      }
    }
    Table(("job of " + std::to_string(job_us) + " us").c_str(), contestants);
  }
  const auto units = static_cast<uint32_t>(50e3 * worker_count / unit_ns);
  for (const int64_t pause_us : {200, 5000}) {
    for (uint32_t turn = 0; turn < 60; ++turn) {
      for (Contestant& c : contestants) {
        c.run(units);
        const int64_t resume = clock.NowNs() + pause_us * 1000;
        while (clock.NowNs() < resume) {
        }
        const int64_t start = clock.NowNs();
        c.run(units);
        c.ns.push_back(clock.NowNs() - start);
      }
    }
    Table(("50 us after " + std::to_string(pause_us) + " us idle").c_str(), contestants);
  }
  std::printf("%-28s", "CPU us burnt in 200 ms idle");
  for (Contestant& c : contestants) {
    poll(nullptr, 0, 50);
    c.run(units);
    const int64_t start = CpuNs();
    poll(nullptr, 0, 200);
    std::printf("  %s %.0f", c.name.c_str(), static_cast<double>(CpuNs() - start) * 1e-3);
  }
  std::printf("\n");
}

// Keeps each thread of an arena on the CPU of its slot.
class ArenaBinding final : public tbb::task_scheduler_observer {
 public:
  ArenaBinding(tbb::task_arena& arena, const WorkerPlan& plan, Machine& machine)
      : tbb::task_scheduler_observer(arena), plan_(plan), machine_(machine) {
    observe(true);
  }
  ~ArenaBinding() override { observe(false); }
  void on_scheduler_entry(bool) override {
    const auto slot = static_cast<size_t>(tbb::this_task_arena::current_thread_index());
    const std::optional<uint32_t>& cpu = plan_.workers[slot % plan_.workers.size()].cpu;
    if (cpu.has_value()) (void)machine_.Bind(pthread_self(), std::span(&*cpu, 1));
  }

 private:
  const WorkerPlan& plan_;
  Machine& machine_;
};

// The pieces that ExpertFlow hands out, without its phases: large first, single units at the end.
void RunGuided(WorkerTeam& team, Work& work, uint32_t units) {
  std::atomic<uint32_t> next{0};
  const uint32_t share = 3 * team.worker_count();
  team.ForRanges(team.worker_count(), 1, [&](uint32_t worker, uint32_t, uint32_t) {
    uint32_t at = next.load(std::memory_order_relaxed);
    while (at < units) {
      const uint32_t end = at + std::max((units - at) / share, 1u);
      if (!next.compare_exchange_weak(at, end, std::memory_order_relaxed)) continue;
      work.Run(worker, at, end);
      at = next.load(std::memory_order_relaxed);
    }
  });
}

template <class Partitioner>
void RunArena(tbb::task_arena& arena, Work& work, uint32_t units, Partitioner&& partitioner) {
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<uint32_t>(0, units),
        [&](const tbb::blocked_range<uint32_t>& r) {
          work.Run(static_cast<uint32_t>(tbb::this_task_arena::current_thread_index()), r.begin(),
                   r.end());
        },
        partitioner);
  });
}

std::vector<Contestant> Enter(WorkerTeam& team, tbb::task_arena& arena, Work& work,
                              tbb::affinity_partitioner& affinity) {
  return {{"team",
           [&](uint32_t units) {
             team.ForRanges(units, 1,
                            [&](uint32_t w, uint32_t b, uint32_t e) { work.Run(w, b, e); });
           }},
          {"team-guided", [&](uint32_t units) { RunGuided(team, work, units); }},
          {"tbb-static",
           [&](uint32_t units) { RunArena(arena, work, units, tbb::static_partitioner()); }},
          {"tbb-affinity", [&](uint32_t units) { RunArena(arena, work, units, affinity); }}};
}

int Main(uint32_t threads) {
  const auto machine = Machine::Read();
  if (!machine.ok()) return 1;
  const auto plan = PlanWorkers((*machine)->topology(), AllowedCpus(), {}, {.threads = threads});
  if (!plan.ok()) return 1;
  const auto worker_count = static_cast<uint32_t>(plan->workers.size());
  const CpuKernels& kernels = SelectCpuKernels(DetectCpuFeatures());
  Work work(kernels, worker_count);
  SteadyClock clock;
  double unit_ns = 1e9;
  for (int i = 0; i < 50; ++i) {
    const int64_t start = clock.NowNs();
    work.Run(0, 0, 400);
    unit_ns = std::min(unit_ns, static_cast<double>(clock.NowNs() - start) / 400);
  }
  std::printf("%s, %s\nunit %.0f ns; job times in us, median / 99%%\n", DescribePlan(*plan).c_str(),
              std::string(IsaName(kernels.isa)).c_str(), unit_ns);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, worker_count);
  tbb::affinity_partitioner affinity;
  for (const bool pinned : {false, true}) {
    WorkerTeam team(worker_count);
    tbb::task_arena arena(static_cast<int>(worker_count));
    std::optional<ArenaBinding> arena_binding;
    std::optional<WorkerBinding> team_binding;
    if (pinned) {
      arena_binding.emplace(arena, *plan, **machine);
      team_binding.emplace(team, *plan, **machine);
    }
    std::printf(pinned ? "both pinned\n" : "nobody pinned\n");
    std::vector<Contestant> contestants = Enter(team, arena, work, affinity);
    Compare(contestants, worker_count, unit_ns);
  }
  return 0;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  return hearth::Main(argc > 1 ? static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10)) : 0);
}
