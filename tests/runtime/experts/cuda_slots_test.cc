// Slots in a card's memory: what was uploaded is there, whatever memory it came from, and too
// little room means fewer slots.
#include "runtime/experts/cuda_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "gpu_kernels/device/gpu_memory.h"
#include "runtime/experts/vram_slots.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/runtime/experts/cuda_rig.h"

namespace hearth {
namespace {

class CudaSlotsOnGpu : public OnGpu {
 protected:
  SteadyClock clock_;
};

class CountingSink final : public UploadSink {
 public:
  void OnUploaded(uint32_t, const absl::Status& status) override {
    if (!status.ok()) failed_count_.fetch_add(1);
    count_.fetch_add(1, std::memory_order_release);
    count_.notify_all();
  }
  void Await(uint32_t count) {
    for (uint32_t now; (now = count_.load(std::memory_order_acquire)) < count;) count_.wait(now);
  }
  uint32_t failed_count() const { return failed_count_; }

 private:
  std::atomic<uint32_t> count_{0}, failed_count_{0};
};

// From memory pinned in pieces of 1 MiB, which blobs straddle, and from memory that is not pinned.
TEST_F(CudaSlotsOnGpu, SlotsHoldWhatWasUploaded) {
  const RandomModel model{.hidden = 2560,
                          .width = 640,
                          .expert_count = 12,
                          .formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt}};
  const RandomStore store(model);
  for (const bool pins : {true, false}) {
    PinnedRanges pinned;
    if (pins) {
      pinned = PinnedRanges::Create(store.memory(), 1_MiB, PinnedRanges::PinFor(gpu().id), nullptr);
      ASSERT_GT(pinned.bytes(), 0u) << pinned.notes().front();
      EXPECT_TRUE(pinned.notes().empty()) << pinned.notes().front();
    }
    std::vector<SlotPoolShape> pools;
    for (uint32_t l = 0; l < 2; ++l) {
      pools.push_back({.slot_bytes = AlignUp(store.layouts()[l].stride_bytes(), kSlotAlignBytes),
                       .slot_count = 10,
                       .spare_count = 2,
                       .layers = {LayerId(l)}});
    }
    auto slots = CudaSlots::Create({.gpu = gpu(), .pinned = pinned, .clock = clock_}, pools,
                                   {.verify_uploads = true});
    ASSERT_TRUE(slots.ok()) << slots.status();
    EXPECT_EQ((*slots)->bytes(), pools[0].total_bytes() + pools[1].total_bytes());
    EXPECT_TRUE((*slots)->computes());
    CountingSink sink;
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint32_t e = 0; e < 12; ++e) {
        const SlotRef slot{.pool = l, .slot = SlotId(11 - e)};
        EXPECT_TRUE((*slots)->HostView(slot).empty());
        (*slots)->Upload(slot, store.At({LayerId(l), ExpertId(e)}), sink, e);
      }
    }
    sink.Await(24);
    EXPECT_EQ(sink.failed_count(), 0u);
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint32_t e = 0; e < 12; ++e) {
        const std::span<const std::byte> truth = store.At({LayerId(l), ExpertId(e)});
        const auto read = (*slots)->Read({.pool = l, .slot = SlotId(11 - e)}, truth.size());
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_TRUE(std::ranges::equal(*read, truth)) << l << " " << e;
      }
    }
    EXPECT_EQ((*slots)->stats().staged_count, pins ? 0u : 24u);
    EXPECT_EQ((*slots)->notes().empty(), pins);
  }
}

TEST_F(CudaSlotsOnGpu, SlotsTakeWhatTheCardHasLessTheReserve) {
  const auto memory = ReadGpuMemory(gpu().id);
  ASSERT_TRUE(memory.ok()) << memory.status();
  SlotCacheOptions options{.blob_bytes = std::vector<uint64_t>(48, 2'768'896), .expert_count = 512};
  const PinnedRanges pinned;
  const uint64_t reserve_bytes = memory->free_bytes - std::min(memory->free_bytes, 3_GiB);
  auto slots = OpenVramSlots(
      options, {.free_bytes = memory->free_bytes, .reserve_bytes = reserve_bytes},
      [&](std::span<const SlotPoolShape> pools) -> absl::StatusOr<std::unique_ptr<SlotDevice>> {
        return CudaSlots::Create({.gpu = gpu(), .pinned = pinned, .clock = clock_}, pools, {});
      });
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_LE(slots->device->bytes(), 3_GiB);
  EXPECT_GE(slots->device->bytes(), 2_GiB);
  const auto after = ReadGpuMemory(gpu().id);
  ASSERT_TRUE(after.ok());
  EXPECT_LT(after->free_bytes, memory->free_bytes);
}

// More than the card has: what is refused is tried again with less, and what is left is usable.
TEST_F(CudaSlotsOnGpu, WhatTheCardRefusesIsTriedAgainWithLess) {
  const auto memory = ReadGpuMemory(gpu().id);
  ASSERT_TRUE(memory.ok());
  SlotCacheOptions options{.blob_bytes = std::vector<uint64_t>(200, 2'768'896),
                           .expert_count = 512};
  const PinnedRanges pinned;
  uint32_t tries = 0;
  auto slots = OpenVramSlots(
      options, {.free_bytes = memory->free_bytes + memory->free_bytes / 16, .reserve_bytes = 0},
      [&](std::span<const SlotPoolShape> pools) -> absl::StatusOr<std::unique_ptr<SlotDevice>> {
        ++tries;
        return CudaSlots::Create({.gpu = gpu(), .pinned = pinned, .clock = clock_}, pools, {});
      });
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_GT(tries, 1u);
  ASSERT_FALSE(slots->notes.empty());
  std::printf("%s\n", slots->notes.back().c_str());
}

}  // namespace
}  // namespace hearth
