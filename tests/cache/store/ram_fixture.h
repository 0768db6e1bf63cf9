// A RAM tier over a scripted reader, and somebody who asks it.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cache/store/block_layout.h"
#include "cache/store/block_tier.h"
#include "runtime/base/file.h"
#include "tests/cache/store/scripted_reader.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {

inline constexpr int64_t kTestTimeoutNs = 30'000'000'000;

struct RamSetup {
  uint64_t memory_bytes = 0;  // 0: for every expert
  RamBlocksOptions options = {};
  RamBlocks::HeldElsewhere held_elsewhere = nullptr;
  bool registered = false;  // the reader keeps the memory
};

class RamFixture {
 public:
  explicit RamFixture(const StoreFixture& store, RamSetup setup = {})
      : script(store.bytes()),
        memory_(*AnonymousMapping::Create(setup.memory_bytes != 0 ? setup.memory_bytes
                                                                  : AllBlockBytes(store.file()))) {
    // What leaves is poisoned, so that whoever still reads it finds out.
    setup.options.testing_on_take = [](std::span<std::byte> bytes) {
      std::memset(bytes.data(), 0xDB, bytes.size());
    };
    auto created = RamBlocks::Create(store.file(), memory_.data(),
                                     std::make_unique<ScriptedReader>(script, 16, setup.registered),
                                     clock, setup.options, setup.held_elsewhere);
    HEARTH_CHECK(created.ok());
    blocks = *std::move(created);
  }
  ~RamFixture() { tier().CheckInvariants(); }
  RamBlocks* operator->() { return blocks.get(); }
  std::span<std::byte> memory() const { return memory_.data(); }
  BlockTier& tier() { return static_cast<BlockTier&>(*blocks); }

  TestClock clock;
  ReaderScript script;

 private:
  AnonymousMapping memory_;

 public:
  std::unique_ptr<RamBlocks> blocks;
};

// Collects what arrives. Outlives every Fetch() it has made.
class Asker {
 public:
  explicit Asker(RamBlocks& blocks) : blocks_(blocks) {}
  ~Asker() {
    for (auto& [number, block] : arrived_) {
      if (block.ok()) blocks_.Release(*block);
    }
  }
  // The number by which to await it.
  uint64_t Ask(ExpertKey key) {
    uint64_t number;
    {
      const std::lock_guard lock(mutex_);
      number = asked_count_++;
    }
    blocks_.Fetch(key, [this, number](const absl::StatusOr<BlockId>& block) {
      const std::lock_guard lock(mutex_);
      HEARTH_CHECK(arrived_.emplace(number, block).second);
      ++arrived_count_;
      changed_.notify_all();
    });
    return number;
  }
  absl::StatusOr<BlockId> Await(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_.contains(number); });
    return arrived_.at(number);
  }
  absl::StatusOr<BlockId> Get(ExpertKey key) { return Await(Ask(key)); }
  void AwaitAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_count_ == asked_count_; });
  }
  bool arrived(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return arrived_.contains(number);
  }
  void Release(uint64_t number) {
    absl::StatusOr<BlockId> block;
    {
      const std::lock_guard lock(mutex_);
      block = arrived_.at(number);
      arrived_.erase(number);
    }
    blocks_.Release(*block);
  }
  void ReleaseAll() {
    std::map<uint64_t, absl::StatusOr<BlockId>> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(arrived_);
    }
    for (auto& [number, block] : all) {
      if (block.ok()) blocks_.Release(*block);
    }
  }

 private:
  RamBlocks& blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, absl::StatusOr<BlockId>> arrived_;
  uint64_t asked_count_ = 0;
  uint64_t arrived_count_ = 0;
};

// One pass over one layer in which these experts were used, one token long.
inline void UseInOnePass(RamBlocks& blocks, LayerId layer, std::vector<uint32_t> experts) {
  std::vector<ExpertSighting> sightings;
  std::sort(experts.begin(), experts.end());
  for (const uint32_t e : experts) sightings.push_back({ExpertId(e), 1});
  blocks.Observe({layer, sightings, TrafficKind::kWindow});
  blocks.EndWindow(1);
}

}  // namespace hearth
