// Where the tests of the RAM tiers let experts arrive.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "cache/store/expert_store.h"

namespace hearth {

// Keeps what arrives until it is told not to.
class KeepingSink final : public ArrivalSink {
 public:
  void OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(arrived_.emplace(index, std::move(lease)).second) << index << " arrived twice";
    changed_.notify_all();
  }
  std::map<uint32_t, absl::StatusOr<ExpertLease>>& Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_.size() == count; });
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, absl::StatusOr<ExpertLease>> arrived_;
};

}  // namespace hearth
