// A RAM tier whose every event a test directs: which experts are in RAM, when and in which order
// the others arrive, which never do. Each expert's bytes exist only while somebody has a lease on
// them: the last one to let go leaves 0xFF behind, which computes to NaN.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/store/expert_store.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"
#include "tests/support/yield_for.h"

namespace hearth {

struct StagedStoreOptions {
  uint32_t miss_percent = 0;  // of the experts, by a draw for every window
  uint64_t seed = 1;
  bool late = true;           // Fetch() returns first; experts arrive on a thread, in any order
  uint32_t delay_us_max = 0;  // before each of those
  bool takes_exchange = false;
  bool keeps_in_place = false;              // bytes are there without a lease; with no misses
  std::string path = "staged/experts.bin";  // in errors
};

class StagedStore final : public ExpertStore {
 public:
  struct Exchanged {
    ExpertKey in;
    ExpertKey out;
    uint64_t byte_count = 0;
    bool right_bytes = false;  // those of `out`
  };

  // `truth` has every expert in RAM and outlives this.
  StagedStore(ExpertStore& truth, const StagedStoreOptions& options)
      : truth_(truth), options_(options), prng_(options.seed) {
    for (uint32_t l = 0; l < truth.layer_count(); ++l) {
      for (uint32_t e = 0; e < truth.expert_count(); ++e) {
        truths_.push_back(*truth.Acquire({LayerId(l), ExpertId(e)}));
      }
    }
    blobs_.resize(truths_.size());
    for (size_t i = 0; i < blobs_.size(); ++i) {
      const uint64_t bytes = truths_[i].bytes().size();
      blobs_[i].memory.assign(bytes + kAlignBytes, std::byte{0xFF});
      const auto at = reinterpret_cast<uintptr_t>(blobs_[i].memory.data());
      blobs_[i].bytes = std::span(blobs_[i].memory).subspan(-at % kAlignBytes, bytes);
      if (options_.keeps_in_place) std::ranges::copy(truths_[i].bytes(), blobs_[i].bytes.begin());
    }
    asks_.reserve(truths_.size());
    exchanges_.reserve(1 << 16);
    ahead_.reserve(1 << 16);
    if (options_.late) thread_ = std::thread([this] { ArriveMain(); });
  }
  ~StagedStore() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    HEARTH_CHECK(lease_count() == 0);
  }

  // Reads of these fail from now on.
  void SetFailing(std::set<ExpertKey> keys) {
    const std::lock_guard lock(mutex_);
    failing_ = std::move(keys);
  }
  void set_all_failing(bool all) { all_failing_ = all; }
  void set_miss_percent(uint32_t percent) { options_.miss_percent = percent; }
  // Called, on the thread that brings them, before an arrival is delivered.
  std::function<void(ExpertKey)> before_arrival;

  bool in_ram(ExpertKey key) const {
    const uint64_t draw = SplitMix64(options_.seed * 1000003 + window_ * 4099 + Index(key));
    return draw % 100 >= options_.miss_percent;
  }
  std::span<const std::byte> truth(ExpertKey key) const { return truths_[Index(key)].bytes(); }
  int64_t lease_count() const { return lease_count_.load(); }
  uint32_t leases_of(ExpertKey key) const {
    const std::lock_guard lock(mutex_);
    return blobs_[Index(key)].lease_count;
  }
  uint64_t read_count() const { return read_count_.load(); }
  const std::vector<Exchanged>& exchanges() const { return exchanges_; }
  const std::vector<ExpertKey>& looked_ahead() const { return ahead_; }

  uint32_t layer_count() const override { return truth_.layer_count(); }
  uint32_t expert_count() const override { return truth_.expert_count(); }
  const ExpertLayout& layout(LayerId layer) const override { return truth_.layout(layer); }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override {
    if (in_ram(key)) return Lease(key);
    return Read(key);
  }
  std::optional<ExpertLease> TryAcquire(ExpertKey key) override {
    if (!in_ram(key)) return std::nullopt;
    return Lease(key);
  }
  void Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) override {
    if (!options_.late) {
      for (uint32_t i = 0; i < experts.size(); ++i) sink.OnArrival(i, Read({layer, experts[i]}));
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      for (uint32_t i = 0; i < experts.size(); ++i)
        asks_.push_back({&sink, i, {layer, experts[i]}});
    }
    changed_.notify_all();
  }
  void LookAhead(LayerId layer, std::span<const ExpertId> experts) override {
    for (const ExpertId expert : experts) ahead_.push_back({layer, expert});
  }
  void EndWindow(uint32_t) override { ++window_; }
  bool keeps_in_place() const override { return options_.keeps_in_place; }
  bool takes_exchange() const override { return options_.takes_exchange; }
  void Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) override {
    const bool right =
        !out.layer.valid() ? out_bytes.empty() : std::ranges::equal(out_bytes, truth(out));
    exchanges_.push_back({in, out, out_bytes.size(), right});
  }

 private:
  static constexpr uint64_t kAlignBytes = 64;
  struct Blob {
    std::vector<std::byte> memory;
    std::span<std::byte> bytes;
    uint32_t lease_count = 0;
  };
  struct Ask {
    ArrivalSink* sink = nullptr;
    uint32_t index = 0;
    ExpertKey key;
  };

  size_t Index(ExpertKey key) const {
    return size_t{key.layer.value} * truth_.expert_count() + key.expert.value;
  }
  ExpertLease Lease(ExpertKey key) {
    const std::lock_guard lock(mutex_);
    Blob& blob = blobs_[Index(key)];
    const bool reads = blob.lease_count++ == 0 && !options_.keeps_in_place;
    if (reads) std::ranges::copy(truth(key), blob.bytes.begin());
    ++lease_count_;
    return MakeLease(Index(key), blob.bytes);
  }
  void Release(uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    Blob& blob = blobs_[ticket];
    HEARTH_CHECK(blob.lease_count > 0);
    const bool drops = --blob.lease_count == 0 && !options_.keeps_in_place;
    if (drops) std::ranges::fill(blob.bytes, std::byte{0xFF});
    --lease_count_;
  }
  absl::StatusOr<ExpertLease> Read(ExpertKey key) {
    ++read_count_;
    bool fails = all_failing_;
    {
      const std::lock_guard lock(mutex_);
      fails |= failing_.contains(key);
    }
    if (!fails) return Lease(key);
    return absl::DataLossError(absl::StrCat(options_.path, ": layer ", key.layer.value, " expert ",
                                            key.expert.value, ": Input/output error"));
  }
  void ArriveMain() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !asks_.empty() || stopping_; });
      if (asks_.empty()) return;
      std::swap(asks_[prng_.Below(asks_.size())], asks_.back());
      const Ask ask = asks_.back();
      asks_.pop_back();
      const uint64_t delay_us = prng_.Below(uint64_t{options_.delay_us_max} + 1);
      lock.unlock();
      if (delay_us > 0) YieldFor(static_cast<int64_t>(delay_us));
      if (before_arrival) before_arrival(ask.key);
      ask.sink->OnArrival(ask.index, Read(ask.key));
      lock.lock();
    }
  }

  ExpertStore& truth_;
  StagedStoreOptions options_;
  std::vector<ExpertLease> truths_;
  std::atomic<int64_t> lease_count_{0};
  std::atomic<uint64_t> read_count_{0};
  std::atomic<bool> all_failing_{false};
  uint64_t window_ = 0;
  std::vector<Exchanged> exchanges_;
  std::vector<ExpertKey> ahead_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Blob> blobs_;
  std::set<ExpertKey> failing_;
  std::vector<Ask> asks_;
  Prng prng_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hearth
