// Host memory as a card: copies end in the order in which they began, each slot is its own memory,
// and nothing is lost when more copies wait than fit or when the device goes.
#include "runtime/experts/host_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/support/allocation_count.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<SlotPoolShape> TwoPools() {
  return {{.slot_bytes = 512, .slot_count = 5, .spare_count = 2, .layers = {LayerId(0)}},
          {.slot_bytes = 1280, .slot_count = 3, .spare_count = 1, .layers = {LayerId(1)}}};
}

std::unique_ptr<HostSlots> MakeSlots(const HostSlotsOptions& options) {
  auto slots = HostSlots::Create(TwoPools(), options);
  EXPECT_TRUE(slots.ok()) << slots.status();
  return *std::move(slots);
}

// Indices in the order in which it heard of them.
class Heard final : public UploadSink {
 public:
  Heard() { order_.reserve(1000); }
  void OnUploaded(uint32_t index, const absl::Status& status) override {
    EXPECT_TRUE(status.ok()) << status;
    order_.push_back(index);
    count_.fetch_add(1, std::memory_order_release);
    count_.notify_all();
  }
  void Await(uint32_t count) const {
    for (uint32_t now; (now = count_.load(std::memory_order_acquire)) < count;) count_.wait(now);
  }
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  const std::vector<uint32_t>& order() const { return order_; }

 private:
  std::vector<uint32_t> order_;
  std::atomic<uint32_t> count_{0};
};

std::vector<std::byte> Pattern(uint64_t bytes, uint32_t value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

TEST(HostSlots, EachSlotOfEachPoolIsItsOwnMemory) {
  const auto slots = MakeSlots({});
  Heard heard;
  const std::vector<SlotPoolShape> pools = TwoPools();
  std::vector<SlotRef> refs;
  std::vector<std::vector<std::byte>> sources;
  for (uint32_t p = 0; p < pools.size(); ++p) {
    for (uint32_t s = 0; s < pools[p].total_count(); ++s) {
      refs.push_back({.pool = p, .slot = SlotId(s)});
      sources.push_back(Pattern(pools[p].slot_bytes, static_cast<uint32_t>(refs.size())));
    }
  }
  for (uint32_t i = 0; i < refs.size(); ++i) slots->Upload(refs[i], sources[i], heard, i);
  heard.Await(static_cast<uint32_t>(refs.size()));
  for (uint32_t i = 0; i < refs.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(slots->HostView(refs[i]), sources[i])) << i;
    const auto read = slots->Read(refs[i], sources[i].size());
    ASSERT_TRUE(read.ok());
    EXPECT_TRUE(std::ranges::equal(*read, sources[i])) << i;
  }
  EXPECT_GE(slots->bytes(), pools[0].total_bytes() + pools[1].total_bytes());
  EXPECT_FALSE(slots->computes());
}

TEST(HostSlots, ShortSourceFillsTheFrontOfTheSlotOnly) {
  const auto slots = MakeSlots({});
  Heard heard;
  const SlotRef ref{.pool = 1, .slot = SlotId(2)};
  const auto whole = Pattern(1280, 7);
  const auto part = Pattern(100, 9);
  slots->Upload(ref, whole, heard, 0);
  slots->Upload(ref, part, heard, 1);
  heard.Await(2);
  EXPECT_THAT(slots->HostView(ref).first(100), Each(std::byte{9}));
  EXPECT_THAT(slots->HostView(ref).subspan(100), Each(std::byte{7}));
}

// More uploads than may wait: the one who asks waits, all end in their order, the hook sees each.
TEST(HostSlots, UploadsBeyondTheQueueWaitAndEndInTheirOrder) {
  std::atomic<uint32_t> hook_count{0};
  const auto slots = MakeSlots({.uploads_max = 2, .before_copy = [&] {
                                  if (hook_count++ % 5 == 0) {
                                    YieldFor(300);
                                  }
                                }});
  Heard heard;
  std::vector<std::vector<std::byte>> sources;
  for (uint32_t i = 0; i < 30; ++i) sources.push_back(Pattern(512, i));
  for (uint32_t i = 0; i < 30; ++i) {
    slots->Upload({.pool = 0, .slot = SlotId(i % 3)}, sources[i], heard, i);
  }
  heard.Await(30);
  EXPECT_TRUE(std::ranges::is_sorted(heard.order()));
  EXPECT_EQ(hook_count, 30u);
  for (uint32_t s = 0; s < 3; ++s) {  // of each slot the last one stays
    EXPECT_THAT(slots->HostView({.pool = 0, .slot = SlotId(s)}), Each(std::byte(27 + s)));
  }
}

TEST(HostSlots, NothingIsCopiedBeforeTheHookReturns) {
  std::atomic<bool> open{false};
  const auto slots = MakeSlots({.before_copy = [&] { open.wait(false); }});
  Heard heard;
  const auto source = Pattern(512, 3);
  const SlotRef ref{.pool = 0, .slot = SlotId(1)};
  slots->Upload(ref, source, heard, 0);
  YieldFor(5000);
  EXPECT_EQ(heard.count(), 0u);
  EXPECT_THAT(slots->HostView(ref), Each(std::byte{0}));
  open = true;
  open.notify_all();
  heard.Await(1);
  EXPECT_THAT(slots->HostView(ref), Each(std::byte{3}));
}

TEST(HostSlots, EveryUploadIsHeardOfBeforeTheDeviceIsGone) {
  Heard heard;
  const auto source = Pattern(512, 3);
  auto slots = MakeSlots({.before_copy = [] { YieldFor(200); }});
  for (uint32_t i = 0; i < 7; ++i) slots->Upload({.pool = 0, .slot = SlotId(i)}, source, heard, i);
  slots.reset();
  EXPECT_EQ(heard.count(), 7u);
}

TEST(HostSlots, MemoryThatCannotBeHadIsAnErrorWithARemedy) {
  const std::vector<SlotPoolShape> pools = {
      {.slot_bytes = uint64_t{1} << 40, .slot_count = 1 << 16, .layers = {LayerId(0)}}};
  const auto slots = HostSlots::Create(pools, {});
  ASSERT_FALSE(slots.ok());
  EXPECT_EQ(slots.status().code(), absl::StatusCode::kResourceExhausted) << slots.status();
  EXPECT_THAT(std::string(slots.status().message()), HasSubstr("--slots"));
}

TEST(HostSlots, NoPoolsTakeNoMemory) {
  const auto slots = HostSlots::Create({}, {});
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_EQ((*slots)->bytes(), 0u);
}

TEST(HostSlots, UploadsAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  const auto slots = MakeSlots({.uploads_max = 4});
  Heard heard;
  const auto source = Pattern(512, 3);
  const uint64_t before = AllocationCount();
  for (uint32_t i = 0; i < 100; ++i) {
    slots->Upload({.pool = 0, .slot = SlotId(i % 7)}, source, heard, i);
  }
  heard.Await(100);
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
