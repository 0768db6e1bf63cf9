// Readers on other threads hold slots and drop their leases whenever they like, while the owner
// swaps: what a reader sees under its lease never changes. The slots are plain memory, so that a
// thread sanitizer sees a write that is not ordered after the last read.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cache/slots/slot_cache.h"
#include "runtime/base/prng.h"
#include "tests/cache/slots/slot_driver.h"

namespace hearth {
namespace {

constexpr uint32_t kWords = 64;  // of a slot

uint32_t WordOf(ExpertKey key) { return key.layer.value * 1000 + key.expert.value + 1; }

struct Reading {
  SlotLease lease;
  ExpertKey key;
};

class Readings {  // at most `capacity` wait
 public:
  explicit Readings(size_t capacity) : capacity_(capacity) {}
  void Push(Reading reading) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.size() < capacity_; });
    waiting_.push_back(std::move(reading));
    changed_.notify_all();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  std::optional<Reading> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return std::nullopt;
    Reading reading = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    return reading;
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Reading> waiting_;
  bool is_closed_ = false;
};

TEST(SlotCacheThreads, WhatALeaseHoldsDoesNotChangeUnderItsReaders) {
  SlotCacheOptions options = SmallCache(2, 32, 24);
  options.policy = "lru";
  options.spare_count = 3;
  const auto cache = MakeCache(options);
  std::vector<std::vector<uint32_t>> memory(cache->pools()[0].total_count(),
                                            std::vector<uint32_t>(kWords, UINT32_MAX));
  Readings readings(16);
  std::atomic<uint64_t> read_count{0};
  std::atomic<uint64_t> wrong_count{0};
  const auto read = [&] {
    uint64_t wrong = 0;
    uint64_t busy = 1;
    while (std::optional<Reading> reading = readings.Pop()) {
      const uint64_t generation = cache->generation(reading->lease.ref());
      const std::vector<uint32_t>& words = memory[reading->lease.ref().slot.value];
      for (int round = 0; round < 3; ++round) {
        for (const uint32_t word : words) wrong += word != WordOf(reading->key) ? 1 : 0;
      }
      wrong += cache->generation(reading->lease.ref()) != generation ? 1 : 0;
      read_count.fetch_add(1, std::memory_order_relaxed);
      reading.reset();
      // The owner may fill the slot before this thread is at the queue's lock again, which would
      // order the two as well.
      for (int i = 0; i < 5000; ++i) busy = SplitMix64(busy);
    }
    wrong_count += wrong + (busy == 0 ? 1 : 0);
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read);

  Prng prng(1);
  for (int window = 0; window < 1500; ++window) {
    for (uint32_t layer = 0; layer < 2; ++layer) {
      std::set<uint32_t> chosen;
      const uint32_t topic = static_cast<uint32_t>(window / 20 % 5 * 5);
      while (chosen.size() < 5) chosen.insert(topic + static_cast<uint32_t>(prng.Below(10)));
      for (const uint32_t e : chosen) {
        SlotLease lease = cache->Acquire(Key(layer, e));
        if (lease.valid()) readings.Push({std::move(lease), Key(layer, e)});
      }
      ObserveLayer(*cache, layer, {chosen.begin(), chosen.end()});
      const std::span<const Swap> proposed = cache->Propose();
      const std::vector<Swap> swaps(proposed.begin(), proposed.end());
      for (const Swap& swap : swaps) {
        cache->BeginSwap(swap);
        const absl::StatusOr<SlotRef> slot = cache->BeginFill(swap.in);
        if (!slot.ok()) {
          cache->CancelSwap(swap);
          continue;
        }
        memory[slot->slot.value].assign(kWords, WordOf(swap.in));
        cache->Land(*slot, swap);
      }
    }
    cache->EndWindow(1);
  }
  readings.Close();
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(wrong_count.load(), 0u);
  EXPECT_GT(read_count.load(), 3000u);
  EXPECT_GT(cache->stats().swap_count, 500u);
}

}  // namespace
}  // namespace hearth
