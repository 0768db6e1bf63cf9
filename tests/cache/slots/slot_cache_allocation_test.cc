// A window allocates nothing, whatever happens in it: hits, swaps, uploads, refused fills.
#include <gtest/gtest.h>

#include <array>

#include "cache/slots/slot_cache.h"
#include "runtime/base/prng.h"
#include "tests/cache/slots/slot_driver.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 6;
constexpr uint32_t kExperts = 64;
constexpr uint32_t kDistinct = 12;

struct Work {  // made before anything is counted
  std::array<ExpertSighting, kDistinct> sightings;
  std::array<SlotLease, kDistinct> leases;
  std::array<Swap, 2> swaps;
  uint64_t swap_count = 0;
  uint64_t refused_count = 0;
};

void RunLayer(SlotCache& cache, uint32_t layer, Prng& prng, Work& work) {
  const auto first = static_cast<uint32_t>(prng.Below(kExperts - 5 * kDistinct + 1));
  for (uint32_t i = 0; i < kDistinct; ++i) {
    const auto e = first + 5 * i + static_cast<uint32_t>(prng.Below(5));
    work.sightings[i] = {.expert = ExpertId(std::min(e, kExperts - kDistinct + i)),
                         .entry_count = 1};
    work.leases[i] = cache.Acquire({LayerId(layer), work.sightings[i].expert});
  }
  cache.Observe({.layer = LayerId(layer), .experts = work.sightings});
  const std::span<const Swap> proposed = cache.Propose();
  std::copy(proposed.begin(), proposed.end(), work.swaps.begin());
  const size_t count = proposed.size();
  std::array<SlotRef, 5> uploads;  // more than there are spares
  for (uint32_t i = 0; i < uploads.size(); ++i) {
    const ExpertKey key = Key(layer, static_cast<uint32_t>(prng.Below(kExperts)));
    if (cache.resident(key)) continue;
    const absl::StatusOr<SlotRef> slot = cache.BeginFill(key);
    if (slot.ok()) uploads[i] = *slot;
    work.refused_count += slot.ok() ? 0 : 1;
  }
  for (const SlotRef upload : uploads) {
    if (upload.valid()) cache.Discard(upload);
  }
  for (const Swap& swap : std::span(work.swaps).first(count)) {
    cache.BeginSwap(swap);
    const absl::StatusOr<SlotRef> slot = cache.BeginFill(swap.in);
    if (slot.ok() && prng.Below(4) != 0) {
      cache.Land(*slot, swap);
      ++work.swap_count;
    } else {
      if (slot.ok()) cache.Discard(*slot);
      cache.CancelSwap(swap);
    }
  }
  for (SlotLease& lease : work.leases) lease = SlotLease();
}

TEST(SlotCacheAllocation, AWindowAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  for (const std::string& policy : PolicyNames()) {
    SlotCacheOptions options = SmallCache(kLayers, kExperts, kLayers * kExperts * 2 / 5);
    options.spare_count = 2;
    options.policy = policy;
    const auto cache = MakeCache(options);
    Prng prng(1);
    Work work;
    const uint64_t before = AllocationCount();
    for (int window = 0; window < 300; ++window) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) RunLayer(*cache, layer, prng, work);
      cache->EndWindow(1);
    }
    EXPECT_EQ(AllocationCount(), before) << policy;
    EXPECT_GT(work.swap_count, 100u) << policy;
    EXPECT_GT(work.refused_count, 100u) << policy;
  }
}

TEST(SlotCacheAllocation, ARefusedFillAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  SlotCacheOptions options = SmallCache(1, 8, 1);
  options.spare_count = 1;
  const auto cache = MakeCache(options);
  ASSERT_EQ(Fill(*cache), 1u);
  ASSERT_TRUE(cache->BeginFill(Key(0, 5)).ok());
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(cache->BeginFill(Key(0, 6)).ok());  // no spare
    EXPECT_FALSE(cache->BeginFill(Key(0, 5)).ok());  // on its way
  }
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
