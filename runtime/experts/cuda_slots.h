// Slots in a card's memory: one arena for each pool, and a stream of their own for the copies,
// which run beside the passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/clock.h"
#include "runtime/experts/pinned_ranges.h"
#include "runtime/experts/slot_device.h"
#include "runtime/experts/upload_queue.h"

namespace hearth {

struct CudaSlotsOptions {
  uint32_t in_flight_max = 8;        // uploads that the card has been given
  uint32_t waiting_max = 64;         // and others behind them
  uint32_t staging_piece_count = 4;  // for sources that are not pinned
  uint64_t staging_piece_bytes = uint64_t{4} << 20;
  int64_t upload_timeout_ns = 10'000'000'000;
  bool verify_uploads = false;  // reads every slot back: for finding faults of a card
};

class CudaCopyEngine;

class CudaSlots final : public SlotDevice {
 public:
  struct Deps {  // all outlive this
    const GpuInfo& gpu;
    const PinnedRanges& pinned;  // whose memory is read in place
    Clock& clock;
  };
  // Allocates the pools and checks that the memory is really there. ResourceExhausted when the card
  // has no room, DataLoss when its memory fails the check, Unimplemented in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<CudaSlots>> Create(const Deps& deps,
                                                           std::span<const SlotPoolShape> pools,
                                                           const CudaSlotsOptions& options);
  // Waits for copies under way. A card that has stopped to answer keeps its memory until the
  // process ends: giving it back would wait for the card.
  ~CudaSlots() override;

  std::string_view name() const override { return name_; }
  bool computes() const override { return true; }
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
              uint32_t index) override;
  absl::StatusOr<std::span<const std::byte>> Read(SlotRef slot, uint64_t bytes) override;
  std::span<const std::byte> HostView(SlotRef) const override { return {}; }
  uint64_t bytes() const override;
  std::vector<std::string> notes() const override;

  std::byte* Address(SlotRef slot) const;  // on the card
  GpuId gpu() const { return gpu_; }
  const PinnedRanges& pinned() const { return pinned_; }
  UploadStats stats() const { return queue_->stats(); }

 private:
  CudaSlots(const Deps& deps, std::unique_ptr<CudaCopyEngine> engine);
  const GpuId gpu_;
  const PinnedRanges& pinned_;
  const std::string name_;
  std::unique_ptr<CudaCopyEngine> engine_;
  std::unique_ptr<UploadQueue> queue_;  // after the engine: it goes first
};

}  // namespace hearth
