// The tier of one process: right bytes from real files by every kind of reader, memory that stays
// within its budget, and arrivals for every index.
#include "cache/store/budget_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "cache/store/block_layout.h"
#include "runtime/base/memory_limits.h"
#include "tests/cache/store/keeping_sink.h"
#include "tests/cache/store/scripted_reader.h"
#include "tests/cache/store/store_fixture.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

// Uses each expert as it comes and lets it go.
class PassingSink final : public ArrivalSink {
 public:
  explicit PassingSink(const StoreFixture* store) : store_(store) {}
  void Begin(LayerId layer, std::span<const ExpertId> experts) {
    layer_ = layer;
    experts_ = experts;
    left_ = static_cast<uint32_t>(experts.size());
  }
  void OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) override {
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (store_ != nullptr) {
      EXPECT_TRUE(store_->Equal({layer_, experts_[index]}, lease->bytes()));
    }
    (void)ExpertLease(*std::move(lease));  // given back
    if (left_.fetch_sub(1) == 1) left_.notify_all();
  }
  void Await() {
    for (uint32_t n; (n = left_.load()) != 0;) left_.wait(n);
  }

 private:
  const StoreFixture* store_;
  LayerId layer_;
  std::span<const ExpertId> experts_;
  std::atomic<uint32_t> left_{0};
};

std::vector<ExpertId> AllExperts(const ExpertStore& store) {
  std::vector<ExpertId> experts;
  for (uint32_t e = 0; e < store.expert_count(); ++e) experts.push_back(ExpertId(e));
  return experts;
}

TEST(BudgetStore, EveryReaderAndBudgetGivesThePacksBytes) {
  const StoreFixture fixture;
  SteadyClock clock;
  const uint64_t least = LeastBlockBytes(fixture.file()), all = AllBlockBytes(fixture.file());
  for (const IoChoice io : {IoChoice::kAuto, IoChoice::kPread}) {
    for (const uint64_t budget : {least, all / 4, 3 * all / 5, 2 * all}) {
      uint64_t done_bytes = 0, total_bytes = 1;
      const auto store = BudgetStore::Create(fixture.file(), {.budget_bytes = budget, .io = io},
                                             clock, [&](uint64_t done, uint64_t total) {
                                               done_bytes = done;
                                               total_bytes = total;
                                             });
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_EQ(done_bytes, total_bytes);
      EXPECT_LE((*store)->stats().capacity_bytes, budget);
      const std::vector<ExpertId> experts = AllExperts(**store);
      PassingSink sink(&fixture);
      for (int round = 0; round < 2; ++round) {
        for (uint32_t l = 0; l < (*store)->layer_count(); ++l) {
          sink.Begin(LayerId(l), experts);
          (*store)->Fetch(LayerId(l), experts, sink);
          sink.Await();
          const absl::StatusOr<ExpertLease> lease = (*store)->Acquire(Key(l, 3));
          ASSERT_TRUE(lease.ok()) << lease.status();
          EXPECT_TRUE(fixture.Equal(Key(l, 3), lease->bytes()));
          EXPECT_EQ(lease->bytes().size(), (*store)->layout(LayerId(l)).blob_bytes());
        }
        (*store)->EndWindow(1);
      }
      if (budget >= all) {
        EXPECT_EQ((*store)->stats().read_count, fixture.keys().size());
      }
    }
  }
}

TEST(BudgetStore, TryAcquireNeverReads) {
  const StoreFixture fixture;
  SteadyClock clock;
  const auto store = BudgetStore::Create(
      fixture.file(), {.budget_bytes = AllBlockBytes(fixture.file()) / 2}, clock, nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  const uint64_t reads = (*store)->stats().read_count;
  uint32_t hits = 0;
  for (const ExpertKey key : fixture.keys()) {
    const std::optional<ExpertLease> lease = (*store)->TryAcquire(key);
    if (lease) {
      EXPECT_TRUE(fixture.Equal(key, lease->bytes()));
    }
    hits += lease ? 1 : 0;
  }
  EXPECT_EQ((*store)->stats().read_count, reads);
  EXPECT_EQ(hits, (*store)->stats().resident_count);
  EXPECT_EQ(hits, reads);
}

TEST(BudgetStore, SeedsSayWhatIsReadFirst) {
  const StoreFixture fixture({.has_mtp = false});
  SteadyClock clock;
  std::vector<std::vector<float>> seeds(3, std::vector<float>(16, 0.f));
  seeds[2].assign(16, 5.f);
  const uint64_t budget = 18 * fixture.file().layout(LayerId(0)).stride_bytes();
  const auto store = BudgetStore::Create(
      fixture.file(), {.budget_bytes = budget, .blocks = {.landing_count = 2}, .seeds = seeds},
      clock, nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  for (uint32_t e = 0; e < 16; ++e) EXPECT_TRUE((*store)->TryAcquire(Key(2, e))) << e;
  EXPECT_FALSE((*store)->TryAcquire(Key(0, 0)));
  seeds.pop_back();
  EXPECT_EQ(
      BudgetStore::Create(fixture.file(), {.budget_bytes = budget, .seeds = seeds}, clock, nullptr)
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(BudgetStore, FailedReadsArriveAsErrorsOfTheirIndexOnly) {
  const StoreFixture fixture({.has_mtp = false});
  SteadyClock clock;
  ReaderScript script(fixture.bytes());
  const uint64_t budget = 24 * fixture.file().layout(LayerId(0)).stride_bytes();
  const auto store = BudgetStore::Create(
      fixture.file(),
      {.budget_bytes = budget,
       .open_reader = [&](std::span<std::byte>) -> absl::StatusOr<std::unique_ptr<Reader>> {
         return std::make_unique<ScriptedReader>(script);
       }},
      clock, nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  const uint64_t bad = fixture.file().offset_bytes(Key(2, 5));
  script.Fail([bad](const ReadRequest& request) {
    return request.offset_bytes == bad ? absl::DataLossError("EIO") : absl::OkStatus();
  });
  KeepingSink sink;
  const std::vector<ExpertId> experts = {ExpertId(9), ExpertId(5), ExpertId(1)};
  (*store)->Fetch(LayerId(2), experts, sink);
  auto& arrived = sink.Await(3);
  EXPECT_EQ(arrived.at(1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(fixture.Equal(Key(2, 9), arrived.at(0)->bytes()));
  EXPECT_TRUE(fixture.Equal(Key(2, 1), arrived.at(2)->bytes()));
  EXPECT_EQ((*store)->Acquire(Key(2, 5)).status().code(), absl::StatusCode::kDataLoss);
  arrived.clear();
}

TEST(BudgetStore, DamageIsFoundWhileFilling) {
  StoreFixture fixture;
  fixture.Damage(Key(1, 2));
  SteadyClock clock;
  const absl::Status status =
      BudgetStore::Create(fixture.file(), {.budget_bytes = AllBlockBytes(fixture.file())}, clock,
                          nullptr)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("layer 1 expert 2"), absl::string_view::npos) << status;
}

TEST(BudgetStore, TooLittleIsRefusedBeforeAnythingIsRead) {
  const StoreFixture fixture;
  SteadyClock clock;
  EXPECT_EQ(
      BudgetStore::Create(fixture.file(), {.budget_bytes = 1000}, clock, nullptr).status().code(),
      absl::StatusCode::kResourceExhausted);
}

TEST(BudgetStore, AWindowAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  const StoreFixture fixture({.has_mtp = false});
  SteadyClock clock;
  const uint64_t budget = 12 * fixture.file().layout(LayerId(0)).stride_bytes();
  const auto store = BudgetStore::Create(
      fixture.file(), {.budget_bytes = budget, .io = IoChoice::kPread}, clock, nullptr);
  ASSERT_TRUE(store.ok()) << store.status();
  const std::vector<ExpertId> experts = AllExperts(**store);
  std::vector<ExpertSighting> sightings;
  for (const ExpertId e : experts) sightings.push_back({e, 1});
  PassingSink sink(nullptr);
  const auto window = [&] {
    for (uint32_t l = 0; l < 3; ++l) {
      (*store)->Observe({LayerId(l), sightings, TrafficKind::kWindow});
      (*store)->LookAhead(LayerId(l), std::span(experts).first(2));
      sink.Begin(LayerId(l), experts);
      (*store)->Fetch(LayerId(l), experts, sink);
      sink.Await();
    }
    (*store)->EndWindow(1);
  };
  for (int i = 0; i < 3; ++i) window();
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 5; ++i) window();
  EXPECT_EQ(AllocationCount(), before);
}

uint64_t StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    uint64_t kib = 0;
    if (name == field && status >> kib) return kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// In a process of its own: nothing else has touched memory there.
TEST(BudgetStoreDeathTest, PeakMemoryIsTheBudgetAndTheStatedRest) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  const StoreFixture fixture({.trunk_layers = 10, .expert_count = 96, .has_mtp = false});
  constexpr uint64_t kBudgetBytes = 40'000'000;
  ASSERT_GT(AllBlockBytes(fixture.file()), kBudgetBytes + 2 * kBudgetOverheadBytes);
  const auto use_all = [&] {
    const uint64_t before = StatusBytes("VmRSS:");
    SteadyClock clock;
    auto store =
        BudgetStore::Create(fixture.file(), {.budget_bytes = kBudgetBytes}, clock, nullptr);
    if (!store.ok()) std::_Exit(2);
    for (int round = 0; round < 2; ++round) {
      for (const ExpertKey key : fixture.keys()) {
        if (!(*store)->Acquire(key).ok()) std::_Exit(3);
      }
      (*store)->EndWindow(1);
    }
    const uint64_t peak = StatusBytes("VmHWM:") - before;
    std::fprintf(stderr, "peak %llu\n", static_cast<unsigned long long>(peak));
    std::_Exit(peak <= kBudgetBytes + kBudgetOverheadBytes ? 0 : 1);
  };
  EXPECT_EXIT(use_all(), testing::ExitedWithCode(0), "peak");
}

}  // namespace
}  // namespace hearth
