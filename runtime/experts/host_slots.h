// Host memory that plays a card: a budget of slots, and a copy engine that is one thread. What it
// holds is computed by the CPU's workers, so it makes nothing faster; it proves every rule of the
// cache on machines without a card, and tells what a card of that size would hold.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/file.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

struct HostSlotsOptions {
  uint32_t uploads_max = 64;          // copies waiting or under way
  std::function<void()> before_copy;  // on the copy thread: tests delay copies with it
};

class HostSlots final : public SlotDevice {
 public:
  // ResourceExhausted when the memory cannot be had.
  static absl::StatusOr<std::unique_ptr<HostSlots>> Create(std::span<const SlotPoolShape> pools,
                                                           const HostSlotsOptions& options);
  ~HostSlots() override;

  std::string_view name() const override { return "host memory in place of a card"; }
  bool computes() const override { return false; }
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
              uint32_t index) override;
  absl::StatusOr<std::span<const std::byte>> Read(SlotRef slot, uint64_t bytes) override {
    return HostView(slot).first(bytes);
  }
  std::span<const std::byte> HostView(SlotRef slot) const override { return Bytes(slot); }
  uint64_t bytes() const override;

 private:
  struct Copy {
    SlotRef slot;
    std::span<const std::byte> from;
    UploadSink* sink = nullptr;
    uint32_t index = 0;
  };
  struct Pool {
    AnonymousMapping memory;
    uint64_t slot_bytes = 0;
  };

  explicit HostSlots(const HostSlotsOptions& options) : options_(options) {}
  std::span<std::byte> Bytes(SlotRef slot) const;
  void CopyMain();

  const HostSlotsOptions options_;
  std::vector<Pool> pools_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Copy> queue_;  // a ring of uploads_max
  uint32_t queue_begin_ = 0;
  uint32_t queue_count_ = 0;
  bool stopping_ = false;
  std::thread copier_;
};

}  // namespace hearth
