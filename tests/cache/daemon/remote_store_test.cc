// An engine's store over a daemon's RAM: the pack's bytes whatever happens, leases that hold, and
// what one engine teaches the daemon another one finds.
#include "cache/store/remote_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/prng.h"
#include "tests/cache/daemon/daemon_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class RemoteStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<RemoteStore> Connect(RemoteStoreOptions options = {}) {
    absl::StatusOr<std::unique_ptr<RemoteStore>> remote =
        ConnectTo(socket_, store_, clock_, options);
    EXPECT_TRUE(remote.ok()) << remote.status();
    return remote.ok() ? *std::move(remote) : nullptr;
  }
  std::vector<ExpertId> AllExperts() const {
    std::vector<ExpertId> all;
    for (uint32_t e = 0; e < store_.file().expert_count(); ++e) all.push_back(ExpertId(e));
    return all;
  }

  StoreFixture store_{kDaemonShape};
  FixtureDir dir_;
  std::string socket_ = dir_.File("hearthd");
  SteadyClock clock_;
};

TEST_F(RemoteStoreTest, EveryExpertHasThePacksBytes) {
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  EXPECT_EQ(remote->layer_count(), store_.file().layer_count());
  for (int pass = 0; pass < 2; ++pass) {
    for (const ExpertKey key : store_.keys()) {
      const absl::StatusOr<ExpertLease> lease = remote->Acquire(key);
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_EQ(lease->bytes().size(), store_.file().layout(key.layer).blob_bytes());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(lease->bytes().data()) % 64, 0u);
      EXPECT_TRUE(store_.Equal(key, lease->bytes())) << key.layer.value << " " << key.expert.value;
    }
  }
  EXPECT_EQ(remote->Acquire(Key(9, 0)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(remote->Acquire(Key(0, 16)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RemoteStoreTest, WhatIsInRamNeedsNoMessage) {
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  EXPECT_FALSE(remote->TryAcquire(Key(1, 3)).has_value());
  { ASSERT_TRUE(remote->Acquire(Key(1, 3)).ok()); }
  const std::optional<ExpertLease> lease = remote->TryAcquire(Key(1, 3));
  ASSERT_TRUE(lease.has_value());
  EXPECT_TRUE(store_.Equal(Key(1, 3), lease->bytes()));
  EXPECT_EQ(remote->stats().read_count, 1u);
}

TEST_F(RemoteStoreTest, AFilledDaemonServesAtOnce) {
  DaemonThread daemon(store_, socket_, {.share = 1.0, .fill = true});
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  for (const ExpertKey key : store_.keys()) {
    ASSERT_TRUE(Eventually([&] { return remote->TryAcquire(key).has_value(); }));
  }
  EXPECT_EQ(remote->stats().read_count, store_.keys().size());
  EXPECT_EQ(remote->stats().resident_count, store_.keys().size());
}

TEST_F(RemoteStoreTest, AWholeLayerArrivesEachExpertOnce) {
  DaemonThread daemon(store_, socket_, {.share = 1.0});
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  const std::vector<ExpertId> all = AllExperts();
  for (uint32_t l = 0; l < remote->layer_count(); ++l) {
    Collector collector(all.size());
    remote->Fetch(LayerId(l), all, collector);
    ASSERT_TRUE(collector.Await().ok());
    for (uint32_t e = 0; e < all.size(); ++e) {
      EXPECT_TRUE(store_.Equal(Key(l, e), collector.leases()[e].bytes()));
    }
  }
}

// More leases than the arena has blocks: what the daemon has no room for is read in process.
TEST_F(RemoteStoreTest, ADaemonWithoutRoomMeansReadingInProcess) {
  RamBlocksOptions impatient;
  impatient.read_timeout_ns = 100'000'000;
  DaemonThread daemon(store_, socket_, {.share = 0.3, .blocks = impatient});
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  const std::vector<ExpertId> all = AllExperts();
  Collector collector(all.size());
  remote->Fetch(LayerId(3), all, collector);
  ASSERT_TRUE(collector.Await().ok());
  for (uint32_t e = 0; e < all.size(); ++e) {
    EXPECT_TRUE(store_.Equal(Key(3, e), collector.leases()[e].bytes()));
  }
  EXPECT_TRUE(remote->connected());
  EXPECT_LT(remote->stats().read_count, all.size());
}

TEST_F(RemoteStoreTest, TwoEnginesShareWhatIsRead) {
  DaemonThread daemon(store_, socket_, {.share = 1.0});
  const std::unique_ptr<RemoteStore> one = Connect(), two = Connect();
  ASSERT_TRUE(one != nullptr && two != nullptr);
  for (const ExpertKey key : store_.keys()) ASSERT_TRUE(one->Acquire(key).ok());
  for (const ExpertKey key : store_.keys()) {
    const std::optional<ExpertLease> lease = two->TryAcquire(key);
    ASSERT_TRUE(lease.has_value());
    EXPECT_TRUE(store_.Equal(key, lease->bytes()));
  }
  EXPECT_EQ(two->stats().read_count, store_.keys().size());
}

// Several engines with several threads each, over an arena that holds a third: blocks change hands
// all the time, each is poisoned when it does, and nobody ever sees that.
TEST_F(RemoteStoreTest, LeasesHoldWhileBlocksChangeHands) {
  DaemonThread daemon(store_, socket_, {.share = 0.3});
  std::vector<std::unique_ptr<RemoteStore>> engines;
  for (int i = 0; i < 2; ++i) engines.push_back(Connect());
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RemoteStore& engine = *engines[t % 2];
      Prng prng(t);
      const std::vector<ExpertKey> keys = store_.keys();
      for (int i = 0; i < 150; ++i) {
        const ExpertKey key = keys[prng.Below(keys.size())];
        const absl::StatusOr<ExpertLease> lease = engine.Acquire(key);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_TRUE(store_.Equal(key, lease->bytes()));
        std::this_thread::yield();
        ASSERT_TRUE(store_.Equal(key, lease->bytes()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(engines[0]->stats().read_count, store_.keys().size());
}

TEST_F(RemoteStoreTest, TrafficMakesHeatThatAnotherEngineFinds) {
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> one = Connect(), two = Connect();
  ASSERT_TRUE(one != nullptr && two != nullptr);
  for (int window = 0; window < 4; ++window) {
    const std::vector<ExpertSighting> hot = {{ExpertId(3), 2}, {ExpertId(7), 1}};
    one->Observe({LayerId(1), hot, TrafficKind::kWindow});
    one->EndWindow(1);
  }
  std::vector<float> heat(store_.file().expert_count());
  ASSERT_TRUE(Eventually([&] { return two->Heat(LayerId(1), heat).ok() && heat[3] > 0; }));
  EXPECT_GT(heat[7], 0.0f);
  EXPECT_EQ(heat[4], 0.0f);
  ASSERT_TRUE(two->Heat(LayerId(0), heat).ok());
  EXPECT_EQ(heat[3], 0.0f);
}

TEST_F(RemoteStoreTest, SeedsRaiseTheHeat) {
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  std::vector<float> seeds(store_.file().expert_count());
  seeds[5] = 4.0f;
  remote->Seed(LayerId(2), seeds);
  std::vector<float> heat(seeds.size());
  ASSERT_TRUE(Eventually([&] { return remote->Heat(LayerId(2), heat).ok() && heat[5] > 0; }));
  EXPECT_EQ(heat[6], 0.0f);
}

TEST_F(RemoteStoreTest, LookAheadReadsWhileTheDriveIsIdle) {
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  const std::vector<ExpertId> soon = {ExpertId(2), ExpertId(9)};
  remote->LookAhead(LayerId(1), soon);
  ASSERT_TRUE(Eventually([&] { return remote->stats().lookahead_read_count == 2; }));
  { ASSERT_TRUE(remote->Acquire(Key(1, 9)).ok()); }
  EXPECT_EQ(remote->stats().read_count, 2u);
  EXPECT_EQ(remote->stats().lookahead_used_count, 1u);
}

TEST_F(RemoteStoreTest, ALoweredBudgetGivesMemoryBackAndKeepsServing) {
  DaemonThread daemon(store_, socket_, {.share = 1.0, .fill = true});
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  ASSERT_TRUE(Eventually([&] { return remote->stats().resident_count == store_.keys().size(); }));
  const absl::StatusOr<ExpertLease> held = remote->Acquire(Key(2, 15));
  ASSERT_TRUE(held.ok());
  const uint64_t lower_bytes = ArenaBytes(store_.file(), 0.4);
  ASSERT_TRUE(remote->Lower(lower_bytes).ok());
  EXPECT_LE(remote->stats().capacity_bytes, lower_bytes + AllBlockBytes(store_.file()) / 60);
  EXPECT_TRUE(store_.Equal(Key(2, 15), held->bytes()));
  for (const ExpertKey key : store_.keys()) {
    const absl::StatusOr<ExpertLease> lease = remote->Acquire(key);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(store_.Equal(key, lease->bytes()));
  }
  EXPECT_LE(remote->stats().capacity_bytes, lower_bytes);
  const absl::Status raised = remote->Lower(lower_bytes * 2);
  EXPECT_EQ(raised.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(raised.message(), HasSubstr("can only be lowered"));
}

TEST_F(RemoteStoreTest, ADamagedExpertIsNamed) {
  store_.Damage(Key(1, 4));
  DaemonThread daemon(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect();
  ASSERT_NE(remote, nullptr);
  const absl::Status status = remote->Acquire(Key(1, 4)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("layer 1 expert 4"));
  EXPECT_TRUE(remote->Acquire(Key(1, 5)).ok());
  EXPECT_TRUE(remote->connected());
}

TEST_F(RemoteStoreTest, AnotherPackIsRefusedWithBothNames) {
  DaemonThread daemon(store_, socket_);
  StoreFixture other({.trunk_layers = 2, .hidden = 128, .width = 64});
  const absl::Status status = ConnectTo(socket_, other, clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(store_.path()));
  EXPECT_THAT(status.message(), HasSubstr(other.path()));
}

TEST_F(RemoteStoreTest, ACopyOfThePackIsServed) {
  DaemonThread daemon(store_, socket_);
  StoreFixture copy(kDaemonShape);
  const auto remote = ConnectTo(socket_, copy, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  EXPECT_TRUE(store_.Equal(Key(0, 1), (*remote)->Acquire(Key(0, 1))->bytes()));
}

TEST_F(RemoteStoreTest, NoDaemonIsSaidInTime) {
  const absl::Status status =
      ConnectTo(socket_, store_, clock_, {.connect_wait_ns = 30'000'000}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(socket_));
}

TEST_F(RemoteStoreTest, AnEngineWaitsForADaemonThatStarts) {
  std::thread late([&] {
    absl::StatusOr<std::unique_ptr<RemoteStore>> remote = ConnectTo(socket_, store_, clock_);
    ASSERT_TRUE(remote.ok()) << remote.status();
    EXPECT_TRUE((*remote)->Acquire(Key(0, 0)).ok());
  });
  ::poll(nullptr, 0, 50);
  DaemonThread daemon(store_, socket_);
  late.join();
}

// The daemon ends in order, and comes back: what it had stays readable, the rest is read in process
// with the same bytes, and then the engine is connected again.
TEST_F(RemoteStoreTest, CarriesOnWithoutADaemonAndConnectsAgain) {
  auto daemon = std::make_unique<DaemonThread>(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect({.private_block_count = 3});
  ASSERT_NE(remote, nullptr);
  absl::StatusOr<ExpertLease> held = remote->Acquire(Key(0, 1));
  ASSERT_TRUE(held.ok());
  daemon.reset();
  ASSERT_TRUE(Eventually([&] { return !remote->connected(); }));
  EXPECT_TRUE(store_.Equal(Key(0, 1), held->bytes()));
  EXPECT_TRUE(remote->TryAcquire(Key(0, 1)).has_value()) << "still in the arena";
  for (const ExpertKey key : store_.keys()) {
    const absl::StatusOr<ExpertLease> lease = remote->Acquire(key);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(store_.Equal(key, lease->bytes()));
  }
  ASSERT_EQ(remote->notes().size(), 1u);
  EXPECT_THAT(remote->notes()[0], HasSubstr("is gone (it says hearthd is ending)"));

  daemon = std::make_unique<DaemonThread>(store_, socket_);
  ASSERT_TRUE(Eventually([&] { return remote->connected(); }));
  EXPECT_THAT(remote->notes().back(), HasSubstr("answers at"));
  EXPECT_TRUE(store_.Equal(Key(0, 1), held->bytes())) << "a lease of the arena before";
  EXPECT_EQ(remote->stats().read_count, 0u);
  for (const ExpertKey key : store_.keys()) {
    const absl::StatusOr<ExpertLease> lease = remote->Acquire(key);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(store_.Equal(key, lease->bytes()));
  }
  EXPECT_GT(remote->stats().read_count, 0u);
  *held = ExpertLease();
}

TEST_F(RemoteStoreTest, OrFailsWithAClearErrorWhenThatIsWanted) {
  auto daemon = std::make_unique<DaemonThread>(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect({.on_loss = DaemonLoss::kFail});
  ASSERT_NE(remote, nullptr);
  { ASSERT_TRUE(remote->Acquire(Key(0, 1)).ok()); }
  daemon.reset();
  ASSERT_TRUE(Eventually([&] { return !remote->connected(); }));
  EXPECT_TRUE(remote->Acquire(Key(0, 1)).ok()) << "in the arena";
  const absl::Status status = remote->Acquire(Key(0, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("layer 0 expert 2"));
  EXPECT_THAT(status.message(), HasSubstr(socket_));
}

// All private blocks leased: further reads wait for one to come back, and get it.
TEST_F(RemoteStoreTest, PrivateReadsStayWithinTheirBlocks) {
  auto daemon = std::make_unique<DaemonThread>(store_, socket_);
  const std::unique_ptr<RemoteStore> remote = Connect({.private_block_count = 2});
  ASSERT_NE(remote, nullptr);
  daemon.reset();
  ASSERT_TRUE(Eventually([&] { return !remote->connected(); }));
  const std::vector<ExpertId> all = AllExperts();
  Collector collector(all.size());
  remote->Fetch(LayerId(2), all, collector);
  size_t released = 0;
  ASSERT_TRUE(Eventually([&] {
    // Two arrive, and no third before one of them is let go of.
    if (collector.arrived() < std::min(released + 2, all.size())) return false;
    EXPECT_LE(collector.arrived(), released + 2);
    if (released == all.size()) return true;
    EXPECT_TRUE(store_.Equal(Key(2, static_cast<uint32_t>(released)),
                             collector.leases()[released].bytes()));
    collector.leases()[released++] = ExpertLease();
    return released == all.size();
  }));
  EXPECT_TRUE(collector.Await().ok());
}

}  // namespace
}  // namespace hearth
