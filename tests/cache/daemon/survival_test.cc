// Processes that die without a word: a killed engine's leases come back at once, a killed daemon
// costs its engines nothing but reads of their own, and a daemon that starts anew is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/daemon/daemon.h"
#include "cache/store/remote_store.h"
#include "tests/cache/daemon/daemon_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class SurvivalTest : public ::testing::Test {
 protected:
  // A daemon in a process of its own: this one must have no other thread yet.
  std::unique_ptr<ChildProcess> DaemonProcess(DaemonSetup setup = {}) {
    return std::make_unique<ChildProcess>([&, setup] {
      SteadyClock clock;
      const auto daemon = MakeDaemon(store_, socket_, setup, clock, [](std::string_view) {});
      const UniqueFd never(::eventfd(0, EFD_CLOEXEC));
      if (daemon.ok()) (void)(*daemon)->Run(never.get());
    });
  }

  StoreFixture store_{kDaemonShape};
  FixtureDir dir_;
  std::string socket_ = dir_.File("hearthd");
  SteadyClock clock_;
};

TEST_F(SurvivalTest, AKilledEnginesLeasesAreReclaimed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  ChildProcess engine([&] {
    SteadyClock clock;
    const auto remote = ConnectTo(socket_, store_, clock);
    if (!remote.ok()) ::_exit(1);
    // As many of the class with one layer as its blocks allow, and one by the hazard words alone.
    std::vector<ExpertLease> leases;
    for (uint32_t e = 0; e < 6; ++e) {
      absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(Key(3, e));
      if (!lease.ok()) ::_exit(2);
      leases.push_back(*std::move(lease));
    }
    std::optional<ExpertLease> again = (*remote)->TryAcquire(Key(3, 0));
    if (!again.has_value() || ::write(ends[1], "x", 1) != 1) ::_exit(3);
    ::pause();
  });
  // 8 blocks of that class.
  DaemonThread daemon(store_, socket_, {.share = 0.5});
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  char byte = 0;
  ASSERT_EQ(::read(reading.get(), &byte, 1), 1);
  // The other engine's six stay where they are, however much this one reads.
  std::vector<const std::byte*> held;
  for (uint32_t e = 0; e < 6; ++e) {
    const std::optional<ExpertLease> lease = (*remote)->TryAcquire(Key(3, e));
    ASSERT_TRUE(lease.has_value());
    held.push_back(lease->bytes().data());
  }
  for (uint32_t e = 6; e < 16; ++e) ASSERT_TRUE((*remote)->Acquire(Key(3, e)).ok());
  for (uint32_t e = 0; e < 6; ++e) {
    const std::optional<ExpertLease> lease = (*remote)->TryAcquire(Key(3, e));
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(lease->bytes().data(), held[e]);
  }
  engine.Kill();
  ASSERT_TRUE(Eventually([&] {
    return daemon.lines().find("7 leases reclaimed") != std::string::npos;
  })) << daemon.lines();
  // Their blocks are to be had again: seven experts at once need more than the two that were left.
  const std::vector<ExpertId> experts = {ExpertId(8),  ExpertId(9),  ExpertId(10), ExpertId(11),
                                         ExpertId(12), ExpertId(13), ExpertId(14)};
  Collector collector(experts.size());
  (*remote)->Fetch(LayerId(3), experts, collector);
  ASSERT_TRUE(collector.Await().ok());
  for (uint32_t i = 0; i < experts.size(); ++i) {
    EXPECT_TRUE(store_.Equal({LayerId(3), experts[i]}, collector.leases()[i].bytes()));
  }
}

TEST_F(SurvivalTest, AnEngineThatClosesItsSocketAndLivesKeepsItsLeases) {
  DaemonThread daemon(store_, socket_, {.share = 0.5});
  // Below the store: a link whose socket closes while its words still hold.
  absl::StatusOr<std::unique_ptr<RemoteLink>> link = RemoteLink::Connect(
      *PackIdentityOf(TestManifest(), store_.file()),
      {.socket_path = socket_, .connect_wait_ns = 1'000'000'000, .welcome_wait_ns = 5'000'000'000},
      clock_);
  ASSERT_TRUE(link.ok()) << link.status();
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  { ASSERT_TRUE((*remote)->Acquire(Key(3, 0)).ok()); }
  const uint64_t blob_bytes = store_.file().layout(LayerId(3)).blob_bytes();
  const uint32_t word = *(*link)->TakeWord();
  const auto bytes = (*link)->TryHold(word, Key(3, 0), blob_bytes);
  ASSERT_TRUE(bytes.has_value());
  (*link)->socket().Close();
  ASSERT_TRUE(
      Eventually([&] { return daemon.lines().find("it closed its socket") != std::string::npos; }));
  for (int pass = 0; pass < 3; ++pass) {
    for (uint32_t e = 1; e < 16; ++e) ASSERT_TRUE((*remote)->Acquire(Key(3, e)).ok());
  }
  EXPECT_TRUE(store_.Equal(Key(3, 0), *bytes)) << "not poisoned";
  link->reset();
  ASSERT_TRUE(
      Eventually([&] { return daemon.lines().find("1 leases reclaimed") != std::string::npos; }));
}

TEST_F(SurvivalTest, AKilledDaemonCostsReadsOnly) {
  const std::unique_ptr<ChildProcess> daemon = DaemonProcess({.share = 0.5, .fill = true});
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  ASSERT_TRUE(Eventually([&] { return (*remote)->stats().resident_count > 20; }));
  std::vector<ExpertLease> held;
  for (uint32_t e = 0; e < 3; ++e) held.push_back(*(*remote)->Acquire(Key(1, e)));
  daemon->Kill();
  for (int pass = 0; pass < 2; ++pass) {
    for (const ExpertKey key : store_.keys()) {
      const absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(key);
      ASSERT_TRUE(lease.ok()) << lease.status();
      ASSERT_TRUE(store_.Equal(key, lease->bytes()));
    }
  }
  EXPECT_FALSE((*remote)->connected());
  ASSERT_EQ((*remote)->notes().size(), 1u);
  EXPECT_THAT((*remote)->notes()[0], HasSubstr("is gone"));
  EXPECT_THAT((*remote)->notes()[0], HasSubstr("stays readable"));
  for (uint32_t e = 0; e < 3; ++e) EXPECT_TRUE(store_.Equal(Key(1, e), held[e].bytes()));

  // The socket's file is still there, and nobody serves it: a daemon that starts takes it over.
  ASSERT_TRUE(FileExists(socket_));
  DaemonThread again(store_, socket_, {.share = 0.5});
  ASSERT_TRUE(Eventually([&] { return (*remote)->connected(); }));
  for (uint32_t e = 0; e < 3; ++e) EXPECT_TRUE(store_.Equal(Key(1, e), held[e].bytes()));
  held.clear();
  for (const ExpertKey key : store_.keys()) {
    const absl::StatusOr<ExpertLease> lease = (*remote)->Acquire(key);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(store_.Equal(key, lease->bytes()));
  }
}

// Killed while reads are on their way, again and again: every one of them still arrives.
TEST_F(SurvivalTest, ReadsOnTheirWayOutliveTheDaemon) {
  std::unique_ptr<ChildProcess> daemon = DaemonProcess();
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  std::vector<ExpertId> all;
  for (uint32_t e = 0; e < store_.file().expert_count(); ++e) all.push_back(ExpertId(e));
  std::vector<std::unique_ptr<Collector>> collectors;
  for (uint32_t l = 0; l < 3; ++l) {
    collectors.push_back(std::make_unique<Collector>(all.size()));
    (*remote)->Fetch(LayerId(l), all, *collectors.back());
    if (l == 0) daemon->Kill();
  }
  for (uint32_t l = 0; l < 3; ++l) {
    ASSERT_TRUE(collectors[l]->Await().ok());
    for (uint32_t e = 0; e < all.size(); ++e) {
      EXPECT_TRUE(store_.Equal(Key(l, e), collectors[l]->leases()[e].bytes()));
    }
  }
}

// Held leases of one dead daemon, then a second one that dies as well.
TEST_F(SurvivalTest, TwoDaemonsInTurnMayDie) {
  std::unique_ptr<ChildProcess> first = DaemonProcess(), second;
  ChildProcess starter([&] {
    // Serves once the first has gone.
    SteadyClock clock;
    const UniqueFd never(::eventfd(0, EFD_CLOEXEC));
    for (;;) {
      const auto daemon = MakeDaemon(store_, socket_, {}, clock, [](std::string_view) {});
      if (daemon.ok()) (void)(*daemon)->Run(never.get());
      ::poll(nullptr, 0, 5);
    }
  });
  const auto remote = ConnectTo(socket_, store_, clock_);
  ASSERT_TRUE(remote.ok()) << remote.status();
  absl::StatusOr<ExpertLease> one = (*remote)->Acquire(Key(0, 0));
  ASSERT_TRUE(one.ok());
  first->Kill();
  ASSERT_TRUE(Eventually([&] { return (*remote)->notes().size() >= 2; }));
  ASSERT_TRUE((*remote)->connected());
  absl::StatusOr<ExpertLease> two = (*remote)->Acquire(Key(0, 1));
  ASSERT_TRUE(two.ok());
  starter.Kill();
  ASSERT_TRUE(Eventually([&] { return !(*remote)->connected(); }));
  EXPECT_TRUE(store_.Equal(Key(0, 0), one->bytes()));
  EXPECT_TRUE(store_.Equal(Key(0, 1), two->bytes()));
  EXPECT_TRUE((*remote)->Acquire(Key(2, 2)).ok());
}

}  // namespace
}  // namespace hearth
