// A daemon over a small pack, on a thread of its own or in a process of its own, and clients for
// it. A block that changes hands is poisoned: whoever still reads it finds out.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/daemon/daemon.h"
#include "cache/io/open_reader.h"
#include "cache/store/block_layout.h"
#include "cache/store/pack_identity.h"
#include "cache/store/remote_store.h"
#include "runtime/base/status.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {

// Blobs of 14 KiB, two classes.
inline constexpr StoreShape kDaemonShape{.hidden = 128, .width = 64};

inline Manifest TestManifest() {
  Manifest manifest;
  manifest.made_by = "daemon tests";
  manifest.source_xxh3_128 = "00112233445566778899aabbccddeeff";
  return manifest;
}

// The arena for so many experts of each class, and what lies beside them.
inline uint64_t ArenaBytes(const ExpertFile& file, double share) {
  const auto bytes = static_cast<uint64_t>(static_cast<double>(AllBlockBytes(file)) * share);
  return AlignUp(std::max(bytes, LeastBlockBytes(file)), kArenaPageBytes);
}

struct DaemonSetup {
  double share = 0.5;  // of the experts that fit the arena
  bool fill = false;
  std::string state_path = {};
  RamBlocksOptions blocks = {};
  int64_t greeting_wait_ns = 5'000'000'000;
};

inline DaemonOptions OptionsFor(const StoreFixture& store, const std::string& socket_path,
                                const DaemonSetup& setup) {
  return {.socket_path = socket_path,
          .pack = *PackIdentityOf(TestManifest(), store.file()),
          .source_hash = TestManifest().source_xxh3_128,
          .arena_bytes = ArenaBytes(store.file(), setup.share),
          .state_path = setup.state_path,
          .fill = setup.fill,
          .greeting_wait_ns = setup.greeting_wait_ns};
}

inline absl::StatusOr<std::unique_ptr<Daemon>> MakeDaemon(const StoreFixture& store,
                                                          const std::string& socket_path,
                                                          const DaemonSetup& setup, Clock& clock,
                                                          Daemon::Talk talk) {
  RamBlocksOptions options = setup.blocks;
  options.testing_on_take = [](std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0xDB, bytes.size());
  };
  const auto make_blocks =
      [&store, &clock, options](
          std::span<std::byte> arena,
          RamBlocks::HeldElsewhere held_elsewhere) -> absl::StatusOr<std::unique_ptr<RamBlocks>> {
    HEARTH_ASSIGN_OR_RETURN(
        std::unique_ptr<Reader> reader,
        OpenReader(
            store.path(),
            {.choice = IoChoice::kPread, .buffers = arena, .direct = false, .clock = clock}));
    return RamBlocks::Create(store.file(), arena, std::move(reader), clock, options,
                             std::move(held_elsewhere));
  };
  return Daemon::Create(OptionsFor(store, socket_path, setup), make_blocks, clock, std::move(talk));
}

// On a thread of its own. Stops when it goes.
class DaemonThread {
 public:
  DaemonThread(const StoreFixture& store, const std::string& socket_path,
               const DaemonSetup& setup = {})
      : stop_(::eventfd(0, EFD_CLOEXEC)) {
    absl::StatusOr<std::unique_ptr<Daemon>> made =
        MakeDaemon(store, socket_path, setup, clock_, [this](std::string_view line) {
          const std::lock_guard lock(mutex_);
          lines_.emplace_back(line);
        });
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return;
    daemon_ = *std::move(made);
    thread_ = std::thread([this] { EXPECT_TRUE(daemon_->Run(stop_.get()).ok()); });
  }
  ~DaemonThread() { Stop(); }
  void Stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), 8);
    thread_.join();
    daemon_.reset();
  }
  RamBlocks& blocks() { return daemon_->blocks(); }
  std::string lines() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  SteadyClock clock_;
  UniqueFd stop_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
};

// A child process, made while this one has no other thread. Killed when it goes.
class ChildProcess {
 public:
  template <class Body>
  explicit ChildProcess(Body body) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    ::_exit(0);
  }
  ~ChildProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Its exit status, once it ends by itself.
  int Wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

inline absl::StatusOr<std::unique_ptr<RemoteStore>> ConnectTo(const std::string& socket_path,
                                                              const StoreFixture& store,
                                                              Clock& clock,
                                                              RemoteStoreOptions options = {}) {
  options.socket_path = socket_path;
  options.retry_min_ns = 10'000'000;
  options.retry_max_ns = 50'000'000;
  return RemoteStore::Connect(TestManifest(), store.file(), options, clock);
}

// Waits for what another thread or process is about to bring about.
template <class Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    ::poll(nullptr, 0, 1);
  }
  return false;
}

// Collects a Fetch(): every index once.
class Collector final : public ArrivalSink {
 public:
  explicit Collector(size_t count) : leases_(count), seen_(count) {}
  void OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) override {
    const std::lock_guard lock(mutex_);
    ++seen_[index];
    if (!lease.ok()) status_.Update(lease.status());
    if (lease.ok()) leases_[index] = *std::move(lease);
    ++arrived_;
  }
  bool complete() {
    const std::lock_guard lock(mutex_);
    return arrived_ == seen_.size();
  }
  size_t arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }
  absl::Status Await() {
    EXPECT_TRUE(Eventually([this] { return complete(); }));
    const std::lock_guard lock(mutex_);
    for (const uint32_t count : seen_) EXPECT_EQ(count, 1u);
    return status_;
  }
  std::vector<ExpertLease>& leases() { return leases_; }

 private:
  std::mutex mutex_;
  std::vector<ExpertLease> leases_;
  std::vector<uint32_t> seen_;
  size_t arrived_ = 0;
  absl::Status status_;
};

}  // namespace hearth
