// One layer of routed experts at the sizes of Flash-Next, from memory: 1, 10 and 40 distinct
// experts, on all workers, beside the read rate that the same workers reach in the same run.
//   build/release/tests/runtime/experts/expert_pool_bench [WORKERS [EXPERTS]]
#include "runtime/experts/expert_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/cpus.h"
#include "runtime/base/prng.h"
#include "runtime/topology/machine.h"
#include "runtime/topology/worker_binding.h"
#include "runtime/topology/worker_plan.h"
#include "tests/support/store_pool.h"

namespace hearth {
namespace {

constexpr ExpertLayout kLayout = {.format = ExpertFormat::kNvfp4, .hidden = 2560, .width = 640};
constexpr uint32_t kRanks = 10;
constexpr uint32_t kRowsMax = 8;

// Random blobs: every byte below 0x78, so that scales are finite.
class RandomStore final : public ExpertStore {
 public:
  static absl::StatusOr<std::unique_ptr<RandomStore>> Create(uint32_t expert_count,
                                                             WorkerTeam& team) {
    auto memory = AnonymousMapping::Create(expert_count * kLayout.stride_bytes());
    if (!memory.ok()) return memory.status();
    std::unique_ptr<RandomStore> store(new RandomStore(expert_count, *std::move(memory)));
    team.ForRanges(expert_count, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
      Prng prng(begin);
      auto* words = reinterpret_cast<uint64_t*>(store->memory_.data().data());
      const uint64_t each = kLayout.stride_bytes() / sizeof(uint64_t);
      for (uint64_t i = begin * each; i < end * each; ++i) {
        words[i] = prng.Next() & 0x7777777777777777;
      }
    });
    return store;
  }
  uint32_t layer_count() const override { return 1; }
  uint32_t expert_count() const override { return expert_count_; }
  const ExpertLayout& layout(LayerId) const override { return kLayout; }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override {
    return MakeLease(
        0, memory_.data().subspan(key.expert.value * kLayout.stride_bytes(), kLayout.blob_bytes()));
  }
  std::span<const std::byte> bytes() const { return memory_.data(); }

 private:
  RandomStore(uint32_t expert_count, AnonymousMapping memory)
      : expert_count_(expert_count), memory_(std::move(memory)) {}
  void Release(uint64_t) override {}
  uint32_t expert_count_;
  AnonymousMapping memory_;
};

// Activations of a window, quantised, as the backend leaves them.
struct Input {
  explicit Input(const CpuKernels& kernels)
      : x(size_t{kRowsMax} * kLayout.hidden),
        q(x.size()),
        scale(x.size() / 32),
        sum16(x.size() / 16) {
    Prng prng(1);
    for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
    kernels.quantize_rows.fn({.x = x.data(),
                              .x_stride = kLayout.hidden,
                              .rows = kRowsMax,
                              .cols = kLayout.hidden,
                              .q = q.data(),
                              .scale = scale.data(),
                              .sum16 = sum16.data()});
  }
  ExpertRows Rows(uint32_t rows) const {
    return {.x = x.data(),
            .quantized = {q.data(), scale.data(), sum16.data(), rows, kLayout.hidden},
            .rows = rows};
  }
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16;
};

// `rows` rows, ten experts each, `distinct` different ones in all.
void MakePlan(Prng& prng, uint32_t rows, uint32_t distinct, uint32_t expert_count,
              WindowPlan& plan) {
  std::vector<uint32_t> pool(distinct);
  const auto first = static_cast<uint32_t>(prng.Below(expert_count));
  for (uint32_t i = 0; i < distinct; ++i) pool[i] = (first + i * 7) % expert_count;
  std::sort(pool.begin(), pool.end());
  const uint32_t ranks = std::min(kRanks, distinct);
  std::vector<uint32_t> routes;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      routes.push_back(pool[(row * (distinct - ranks) / std::max(rows - 1, 1u) + rank) % distinct]);
    }
  }
  GroupRoutes({.expert = routes, .rows = rows, .ranks = ranks, .expert_count = expert_count}, plan);
}

double ReadRate(WorkerTeam& team, std::span<const std::byte> memory, Clock& clock) {
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  const auto pages = static_cast<uint32_t>(memory.size() / 4096);
  std::atomic<uint64_t> sink{0};
  int64_t best_ns = INT64_MAX;
  for (int round = 0; round < 5; ++round) {
    const int64_t start = clock.NowNs();
    team.ForRanges(pages, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
      uint64_t sums[8] = {};
      for (uint64_t i = begin * uint64_t{512}; i < end * uint64_t{512}; i += 8) {
        for (int j = 0; j < 8; ++j) sums[j] += words[i + static_cast<uint64_t>(j)];
      }
      for (const uint64_t sum : sums) sink += sum;
    });
    best_ns = std::min(best_ns, clock.NowNs() - start);
  }
  return static_cast<double>(pages) * 4096 / static_cast<double>(best_ns);  // GB/s
}

int64_t Quantile(std::vector<int64_t>& ns, double q) {
  std::sort(ns.begin(), ns.end());
  return ns[static_cast<size_t>(q * static_cast<double>(ns.size() - 1))];
}

template <class Pool>
void MeasureWindow(Pool& pool, const char* name, uint32_t rows, uint32_t distinct, Input& input,
                   uint32_t expert_count, double read_rate, Clock& clock) {
  Prng prng(distinct);
  WindowPlan plan;
  std::vector<float> output(size_t{kRowsMax} * kRanks * kLayout.hidden);
  std::vector<int64_t> ns;
  for (uint32_t i = 0; i < 4000 / (distinct + 10); ++i) {
    MakePlan(prng, rows, distinct, expert_count, plan);
    const int64_t start = clock.NowNs();
    if (!pool.Run(LayerId(0), plan, input.Rows(rows), output).ok()) return;
    ns.push_back(clock.NowNs() - start);
  }
  const auto median = static_cast<double>(Quantile(ns, 0.5));
  const double rate = static_cast<double>(plan.experts.size() * kLayout.blob_bytes()) / median;
  std::printf("%-10s %u rows, %2zu experts: median %7.1f us, 90%% %7.1f us; %5.1f GB/s, %.0f%%\n",
              name, rows, plan.experts.size(), median * 1e-3,
              static_cast<double>(Quantile(ns, 0.9)) * 1e-3, rate, 100 * rate / read_rate);
}

int Main(uint32_t threads, uint32_t expert_count) {
  const auto machine = Machine::Read();
  if (!machine.ok()) return 1;
  const auto worker_plan =
      PlanWorkers((*machine)->topology(), AllowedCpus(), {}, {.threads = threads});
  if (!worker_plan.ok()) return 1;
  WorkerTeam team(static_cast<uint32_t>(worker_plan->workers.size()));
  const WorkerBinding binding(team, *worker_plan, **machine);
  const CpuKernels& kernels = SelectCpuKernels(DetectCpuFeatures());
  auto store = RandomStore::Create(expert_count, team);
  if (!store.ok()) return 1;
  SteadyClock clock;
  const double read_rate = ReadRate(team, (*store)->bytes(), clock);
  std::printf("%s\n%u experts of %.2f MB; read rate %.1f GB/s\n",
              DescribePlan(*worker_plan).c_str(), expert_count,
              static_cast<double>(kLayout.blob_bytes()) * 1e-6, read_rate);
  Input input(kernels);
  auto pool = StorePool::Create(**store, kernels, team, {.rows_max = kRowsMax, .ranks = kRanks});
  if (!pool.ok()) return 1;
  struct Case {
    uint32_t rows, distinct;
  };
  for (int round = 0; round < 3; ++round) {
    for (const Case c : {Case{1, 1}, Case{1, 10}, Case{4, 10}, Case{4, 40}, Case{8, 60}}) {
      MeasureWindow(**pool, "flow", c.rows, c.distinct, input, expert_count, read_rate, clock);
    }
  }
  return 0;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const auto number = [&](int i, uint32_t otherwise) {
    return argc > i ? static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  return hearth::Main(number(1, 0), number(2, 160));
}
