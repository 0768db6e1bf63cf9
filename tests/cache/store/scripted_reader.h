// A Reader whose every completion a test decides: which requests are held back, which fail, and in
// which order the others come. Bytes are written when a request completes, as a kernel does it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/io/reader.h"
#include "runtime/base/prng.h"

namespace hearth {

// Shared by a test and its reader; outlives the reader. Thread-safe.
class ReaderScript {
 public:
  explicit ReaderScript(std::string file, uint64_t seed = 1)
      : file_(std::move(file)), prng_(seed) {}

  // Requests for which it says yes wait until it is replaced.
  void Hold(std::function<bool(const ReadRequest&)> held) {
    const std::lock_guard lock(mutex_);
    held_ = std::move(held);
    changed_.notify_all();
  }
  void HoldAll() {
    Hold([](const ReadRequest&) { return true; });
  }
  void HoldNone() { Hold(nullptr); }
  // What a request ends with.
  void Fail(std::function<absl::Status(const ReadRequest&)> fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void Break(absl::Status status) {
    const std::lock_guard lock(mutex_);
    broken_ = std::move(status);
    changed_.notify_all();
  }
  void FailSubmit(absl::Status status) {
    const std::lock_guard lock(mutex_);
    submit_status_ = std::move(status);
  }
  void Wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  uint64_t submitted_count() const {
    const std::lock_guard lock(mutex_);
    return submitted_.size();
  }
  std::vector<ReadRequest> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  // Waits until so many requests have been submitted in all.
  void AwaitSubmitted(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return submitted_.size() >= count; });
  }
  uint64_t in_flight_count() const {
    const std::lock_guard lock(mutex_);
    return pending_.size();
  }

 private:
  friend class ScriptedReader;

  bool ready(const ReadRequest& request) const { return !held_ || !held_(request); }
  void Complete(const ReadRequest& request) {
    std::memcpy(request.into.data(), file_.data() + request.offset_bytes, request.into.size());
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::string file_;
  Prng prng_;
  std::function<bool(const ReadRequest&)> held_;
  std::function<absl::Status(const ReadRequest&)> fault_;
  absl::Status broken_;
  absl::Status submit_status_;
  bool woken_ = false;
  std::vector<ReadRequest> pending_;
  std::vector<ReadRequest> submitted_;
};

class ScriptedReader final : public Reader {
 public:
  explicit ScriptedReader(ReaderScript& script, uint32_t in_flight_max = 16,
                          bool registered = false)
      : script_(script) {
    traits_.kind = "scripted";
    traits_.registered = registered;
    traits_.align_bytes = 4096;
    traits_.in_flight_max = in_flight_max;
  }
  ~ScriptedReader() override {
    const std::lock_guard lock(script_.mutex_);
    for (const ReadRequest& request : script_.pending_) script_.Complete(request);
  }

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override {
    const std::lock_guard lock(script_.mutex_);
    if (!script_.submit_status_.ok()) return script_.submit_status_;
    size_t count = 0;
    for (const ReadRequest& request : requests) {
      if (script_.pending_.size() >= traits_.in_flight_max) break;
      EXPECT_EQ(request.offset_bytes % traits_.align_bytes, 0u);
      EXPECT_EQ(request.into.size() % traits_.align_bytes, 0u);
      script_.pending_.push_back(request);
      script_.submitted_.push_back(request);
      ++count;
    }
    script_.changed_.notify_all();
    return count;
  }

  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override {
    std::unique_lock lock(script_.mutex_);
    std::vector<ReadRequest>& pending = script_.pending_;
    std::vector<size_t> ready;
    script_.changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] {
      ready.clear();
      for (size_t i = 0; i < pending.size(); ++i) {
        if (script_.ready(pending[i])) ready.push_back(i);
      }
      return !ready.empty() || script_.woken_ || !script_.broken_.ok();
    });
    script_.woken_ = false;
    if (!script_.broken_.ok()) return script_.broken_;
    if (ready.empty() || out.empty()) return 0;
    // One of them, any: the next call brings the next.
    const size_t i = ready[script_.prng_.Below(ready.size())];
    const ReadRequest request = pending[i];
    pending.erase(pending.begin() + static_cast<ptrdiff_t>(i));
    const absl::Status status = script_.fault_ ? script_.fault_(request) : absl::OkStatus();
    if (status.ok()) script_.Complete(request);
    out[0] = {.tag = request.tag, .status = status, .latency_ns = 1};
    return 1;
  }

  void Wake() override { script_.Wake(); }
  uint32_t in_flight() const override { return static_cast<uint32_t>(script_.in_flight_count()); }
  const ReaderTraits& traits() const override { return traits_; }

 private:
  ReaderScript& script_;
  ReaderTraits traits_;
};

}  // namespace hearth
