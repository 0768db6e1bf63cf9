// Mapped experts: the pack's bytes, an error for what cannot be read, a word when the page cache is
// too small.
#include "cache/store/mapped_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "tests/cache/store/keeping_sink.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

class MappedStoreTest : public testing::Test {
 protected:
  std::unique_ptr<MappedStore> Open(const MappedStoreOptions& options = {}) {
    auto store = MappedStore::Create(fixture_.file(), options, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  void DropPages() {
    const UniqueFd fd(::open(fixture_.path().c_str(), O_RDONLY));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  StoreFixture fixture_;
  SteadyClock clock_;
};

TEST_F(MappedStoreTest, EveryExpertHasItsBytes) {
  const auto store = Open();
  std::vector<ExpertId> experts;
  for (uint32_t e = 0; e < store->expert_count(); ++e) experts.push_back(ExpertId(e));
  for (uint32_t l = 0; l < store->layer_count(); ++l) {
    KeepingSink sink;
    store->LookAhead(LayerId(l), experts);
    store->Fetch(LayerId(l), experts, sink);
    for (auto& [index, lease] : sink.Await(experts.size())) {
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_TRUE(fixture_.Equal(Key(l, index), lease->bytes()));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(lease->bytes().data()) % 64, 0u);
    }
    const auto lease = store->Acquire(Key(l, 7));
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_TRUE(fixture_.Equal(Key(l, 7), lease->bytes()));
  }
  EXPECT_TRUE(store->notes().empty());
}

TEST_F(MappedStoreTest, TryAcquireFindsWhatHasBeenUsedAndIsStillThere) {
  const auto store = Open();
  EXPECT_FALSE(store->TryAcquire(Key(0, 1)));  // nobody has checked it yet
  ASSERT_TRUE(store->Acquire(Key(0, 1)).ok());
  const std::optional<ExpertLease> lease = store->TryAcquire(Key(0, 1));
  ASSERT_TRUE(lease);
  EXPECT_TRUE(fixture_.Equal(Key(0, 1), lease->bytes()));
}

TEST_F(MappedStoreTest, AFileCutShorterIsAnErrorOfTheExpertsBeyond) {
  const auto store = Open();
  const uint64_t cut_at = fixture_.file().offset_bytes(Key(3, 4)) + 100;
  ASSERT_TRUE(store->Acquire(Key(3, 12)).ok());  // it was there
  ASSERT_EQ(::truncate(fixture_.path().c_str(), static_cast<off_t>(cut_at)), 0);
  EXPECT_TRUE(store->Acquire(Key(3, 3)).ok());
  for (const ExpertKey key : {Key(3, 4), Key(3, 12)}) {
    const absl::Status status = store->Acquire(key).status();
    EXPECT_FALSE(status.ok());
    for (const std::string& part :
         {fixture_.path(), absl::StrCat("layer ", key.layer.value, " expert ", key.expert.value)}) {
      EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    }
  }
  KeepingSink sink;
  const std::vector<ExpertId> experts = {ExpertId(15), ExpertId(0)};
  store->Fetch(LayerId(3), experts, sink);
  auto& arrived = sink.Await(2);
  EXPECT_FALSE(arrived.at(0).ok());
  EXPECT_TRUE(arrived.at(1).ok());
  EXPECT_FALSE(MappedStore::Create(fixture_.file(), {}, clock_).ok());
}

TEST_F(MappedStoreTest, DamageIsFoundTheFirstTime) {
  fixture_.Damage(Key(1, 9));
  const auto store = Open();
  const absl::Status status = store->Acquire(Key(1, 9)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("layer 1 expert 9"), absl::string_view::npos) << status;
  EXPECT_FALSE(store->TryAcquire(Key(1, 9)));
  EXPECT_TRUE(store->Acquire(Key(1, 8)).ok());
}

TEST_F(MappedStoreTest, ReadsAndFaultsAreCounted) {
  const auto store = Open();
  DropPages();
  for (const ExpertKey key : fixture_.keys()) ASSERT_TRUE(store->Acquire(key).ok());
  const StoreStats cold = store->stats();
  if (cold.read_bytes == 0) GTEST_SKIP() << "this file system does not drop its pages";
  EXPECT_GT(cold.major_fault_count, 0u);
  EXPECT_GT(cold.read_count, 0u);
  EXPECT_GT(cold.read_busy_ns, 0);
  EXPECT_GE(cold.read_bytes, fixture_.bytes().size() / 2);
  for (const ExpertKey key : fixture_.keys()) ASSERT_TRUE(store->Acquire(key).ok());
  EXPECT_EQ(store->stats().read_bytes, cold.read_bytes);
}

TEST_F(MappedStoreTest, APageCacheThatIsTooSmallIsANoteWithBothSizes) {
  const auto store = Open({.available = {.available_bytes = 1 << 20, .source = "/proc/meminfo"}});
  ASSERT_EQ(store->notes().size(), 1u);
  for (const char* part : {"8.44 MiB", "1.00 MiB", "/proc/meminfo", "--ram-budget"}) {
    EXPECT_NE(store->notes()[0].find(part), std::string::npos) << store->notes()[0];
  }
  EXPECT_TRUE(Open({.available = {.available_bytes = 1ull << 40, .source = "/proc/meminfo"}})
                  ->notes()
                  .empty());
}

TEST_F(MappedStoreTest, UnknownExpertsAreNotFound) {
  const auto store = Open();
  EXPECT_EQ(store->Acquire(Key(9, 0)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Acquire(Key(0, 16)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(store->TryAcquire(Key(9, 0)));
  const std::vector<ExpertId> experts = {ExpertId(99)};
  store->LookAhead(LayerId(9), experts);
  store->LookAhead(LayerId(0), experts);
}

}  // namespace
}  // namespace hearth
