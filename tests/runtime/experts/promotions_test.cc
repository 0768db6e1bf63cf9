// Experts on their way into VRAM: a victim stays until its successor is there, a failed copy leaves
// no trace, a source is held as long as it is read and no longer, and the RAM tier hears of every
// landing once, with the victim's bytes.
#include "runtime/experts/promotions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/experts/host_slots.h"
#include "tests/support/allocation_count.h"
#include "tests/support/staged_store.h"
#include "tests/support/tiny_arena.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

// A device whose copies happen when the test says so, on the test's thread.
class SteppedSlots final : public SlotDevice {
 public:
  explicit SteppedSlots(std::span<const SlotPoolShape> pools) {
    for (const SlotPoolShape& pool : pools) {
      memory_.emplace_back(pool.total_bytes(), std::byte{0xFF});
      slot_bytes_.push_back(pool.slot_bytes);
    }
    waiting_.reserve(64);
  }
  // Ends the copy that has waited longest.
  void End(const absl::Status& status = absl::OkStatus()) {
    ASSERT_FALSE(waiting_.empty());
    const Copy copy = waiting_.front();
    waiting_.erase(waiting_.begin());
    // A failed copy has written something, too.
    const size_t count = status.ok() ? copy.from.size() : copy.from.size() / 2;
    std::copy_n(copy.from.begin(), count, Bytes(copy.slot).begin());
    copy.sink->OnUploaded(copy.index, status);
  }
  size_t waiting_count() const { return waiting_.size(); }
  std::span<std::byte> Bytes(SlotRef slot) {
    return std::span(memory_[slot.pool])
        .subspan(slot.slot.value * slot_bytes_[slot.pool], slot_bytes_[slot.pool]);
  }
  absl::Status read_status;
  uint32_t read_count = 0;

  std::string_view name() const override { return "stepped"; }
  bool computes() const override { return false; }
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
              uint32_t index) override {
    waiting_.push_back({slot, from, &sink, index});
  }
  absl::StatusOr<std::span<const std::byte>> Read(SlotRef slot, uint64_t bytes) override {
    ++read_count;
    if (!read_status.ok()) return read_status;
    return Bytes(slot).first(bytes);
  }
  std::span<const std::byte> HostView(SlotRef) const override { return {}; }
  uint64_t bytes() const override { return 0; }

 private:
  struct Copy {
    SlotRef slot;
    std::span<const std::byte> from;
    UploadSink* sink = nullptr;
    uint32_t index = 0;
  };
  std::vector<std::vector<std::byte>> memory_;
  std::vector<uint64_t> slot_bytes_;
  std::vector<Copy> waiting_;
};

class PromotionsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    TinyOptions options = TinyOptions::For(TinyExperts::kModelOptNvfp4);
    options.mtp = TinyMtp::kNone;
    arena_ = std::make_unique<TinyArena>(options);
  }
  static void TearDownTestSuite() { arena_.reset(); }

  void Make(uint64_t slot_count, uint32_t spare_count, bool takes_exchange,
            uint32_t count_max = 8) {
    promotions_.reset();
    slots_ = arena_->MakeSlots({.slot_count = slot_count}, spare_count, "lru");
    store_ = std::make_unique<StagedStore>(
        arena_->store(), StagedStoreOptions{.late = false, .takes_exchange = takes_exchange});
    device_ = std::make_unique<SteppedSlots>(slots_->pools());
    promotions_ = std::make_unique<Promotions>(
        Promotions::Deps{.slots = *slots_, .device = *device_, .store = *store_, .clock = clock_},
        count_max, kWaitNs);
  }
  bool Start(const Swap& swap) { return promotions_->Start(swap, *store_->TryAcquire(swap.in)); }
  void PutIn(ExpertKey key) {
    ASSERT_TRUE(Start({key, ExpertKey()}));
    device_->End();
    promotions_->Settle();
    ASSERT_TRUE(slots_->resident(key));
  }
  // Whether the slot cache knows `key` and its slot holds the expert's bytes.
  bool Readable(ExpertKey key) {
    const SlotLease lease = slots_->Acquire(key);
    if (!lease.valid()) return false;
    const auto truth = store_->truth(key);
    return std::ranges::equal(device_->Bytes(lease.ref()).first(truth.size()), truth);
  }

  static ExpertKey Key(uint32_t layer, uint32_t expert) {
    return {LayerId(layer), ExpertId(expert)};
  }
  const ExpertKey a_ = Key(0, 1), b_ = Key(2, 5), c_ = Key(3, 0), d_ = Key(1, 7);

  static constexpr int64_t kWaitNs = 20'000'000;
  static std::unique_ptr<TinyArena> arena_;
  SteadyClock clock_;
  std::unique_ptr<SlotCache> slots_;
  std::unique_ptr<StagedStore> store_;
  std::unique_ptr<SteppedSlots> device_;
  std::unique_ptr<Promotions> promotions_;
};
std::unique_ptr<TinyArena> PromotionsTest::arena_;

TEST_F(PromotionsTest, VictimStaysReadableUntilTheNewcomerHasLanded) {
  Make(1, 1, true);
  PutIn(a_);
  ASSERT_TRUE(Start({b_, a_}));
  promotions_->Settle();
  EXPECT_TRUE(Readable(a_));
  EXPECT_FALSE(slots_->resident(b_));
  device_->End();
  EXPECT_TRUE(Readable(a_));  // copied, but nobody has settled it
  EXPECT_FALSE(slots_->resident(b_));
  promotions_->Settle();
  EXPECT_FALSE(slots_->resident(a_));
  EXPECT_TRUE(Readable(b_));
  EXPECT_EQ(slots_->counts(0).resident, 1u);
  EXPECT_EQ(slots_->counts(0).filling, 0u);
  EXPECT_TRUE(Start({c_, b_}));  // the victim's slot is the spare one now
  device_->End();
}

TEST_F(PromotionsTest, HeldVictimKeepsItsBytesWhileItsSlotIsWaitedFor) {
  Make(1, 1, true);
  PutIn(a_);
  SlotLease reader = slots_->Acquire(a_);
  const uint64_t generation = slots_->generation(reader.ref());
  ASSERT_TRUE(Start({b_, a_}));
  device_->End();
  promotions_->Settle();
  EXPECT_TRUE(Readable(b_));
  EXPECT_FALSE(Start({c_, b_}));  // the only spare is the one that is being read
  EXPECT_EQ(slots_->generation(reader.ref()), generation);
  EXPECT_TRUE(std::ranges::equal(device_->Bytes(reader.ref()).first(store_->truth(a_).size()),
                                 store_->truth(a_)));
  reader = {};
  EXPECT_TRUE(Start({c_, b_}));
  EXPECT_TRUE(Readable(b_));
  device_->End();
  promotions_->Settle();
  EXPECT_TRUE(Readable(c_));
}

TEST_F(PromotionsTest, FailedCopyLeavesNoTrace) {
  Make(2, 2, true);
  PutIn(a_);
  PutIn(b_);
  const size_t told = store_->exchanges().size();
  for (int turn = 0; turn < 5; ++turn) {
    ASSERT_TRUE(Start({c_, a_}));
    ASSERT_TRUE(Start({d_, b_}));
    device_->End(absl::DataLossError("link"));
    device_->End(absl::DataLossError("link"));
    EXPECT_EQ(store_->lease_count(), 0);
    promotions_->Settle();
    EXPECT_TRUE(Readable(a_));
    EXPECT_TRUE(Readable(b_));
    EXPECT_FALSE(slots_->resident(c_));
    EXPECT_EQ(slots_->counts(0).free, 2u);
    EXPECT_EQ(slots_->counts(0).filling, 0u);
  }
  EXPECT_EQ(slots_->stats().cancelled_count, 10u);
  EXPECT_EQ(store_->exchanges().size(), told);
  ASSERT_TRUE(Start({c_, a_}));  // and it can be tried again
  device_->End();
  promotions_->Settle();
  EXPECT_TRUE(Readable(c_));
}

TEST_F(PromotionsTest, SourceIsHeldUntilItsCopyHasEndedAndNoLonger) {
  Make(3, 3, true);
  ASSERT_TRUE(Start({a_, ExpertKey()}));
  ASSERT_TRUE(Start({b_, ExpertKey()}));
  EXPECT_EQ(store_->leases_of(a_), 1u);
  EXPECT_EQ(store_->leases_of(b_), 1u);
  device_->End();
  EXPECT_EQ(store_->leases_of(a_), 0u);  // before anybody settles: a small RAM tier needs it
  EXPECT_EQ(store_->leases_of(b_), 1u);
  promotions_->Settle();
  EXPECT_EQ(store_->leases_of(b_), 1u);
  device_->End(absl::DataLossError("link"));
  EXPECT_EQ(store_->lease_count(), 0);
  promotions_->Settle();
  EXPECT_TRUE(Readable(a_));
}

TEST_F(PromotionsTest, WhatCannotStartLeavesEverythingAsItWas) {
  Make(4, 2, true, 3);
  ASSERT_TRUE(Start({a_, ExpertKey()}));
  EXPECT_FALSE(Start({a_, ExpertKey()}));  // on its way already
  ASSERT_TRUE(Start({b_, ExpertKey()}));
  ASSERT_TRUE(Start({c_, ExpertKey()}));
  EXPECT_FALSE(Start({d_, ExpertKey()}));  // enough are on their way
  EXPECT_EQ(store_->lease_count(), 3);
  EXPECT_EQ(device_->waiting_count(), 3u);
  for (int i = 0; i < 3; ++i) device_->End();
  promotions_->Settle();
  PutIn(d_);
  for (const ExpertKey key : {a_, b_, c_, d_}) EXPECT_TRUE(Readable(key));
  // All slots are taken: two spares are left.
  ASSERT_TRUE(Start({Key(0, 2), a_}));
  ASSERT_TRUE(Start({Key(0, 3), b_}));
  EXPECT_FALSE(Start({Key(0, 4), c_}));
  EXPECT_EQ(store_->lease_count(), 2);
  device_->End();
  device_->End();
}

TEST_F(PromotionsTest, TheStoreHearsOfEveryLandingOnceWithTheVictimsBytes) {
  Make(2, 2, true);
  PutIn(a_);
  PutIn(b_);
  ASSERT_TRUE(Start({c_, a_}));
  ASSERT_TRUE(Start({d_, b_}));
  device_->End();
  promotions_->Settle();
  ASSERT_EQ(store_->exchanges().size(), 3u);
  device_->End();
  promotions_->Settle();
  promotions_->Settle();
  ASSERT_TRUE(promotions_->Drain().ok());
  ASSERT_EQ(store_->exchanges().size(), 4u);
  const ExpertKey in[] = {a_, b_, c_, d_};
  const ExpertKey out[] = {ExpertKey(), ExpertKey(), a_, b_};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(store_->exchanges()[i].in, in[i]) << i;
    EXPECT_EQ(store_->exchanges()[i].out, out[i]) << i;
    EXPECT_TRUE(store_->exchanges()[i].right_bytes) << i;
  }
  EXPECT_EQ(device_->read_count, 2u);
}

// A device that never answers is an error that names the slot, and what it then answers still
// counts.
TEST_F(PromotionsTest, DrainGivesUpOnADeviceThatDoesNotAnswer) {
  Make(2, 2, true);
  ASSERT_TRUE(Start({a_, ExpertKey()}));
  ASSERT_TRUE(Start({b_, ExpertKey()}));
  const absl::Status status = promotions_->Drain();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("of pool 0: stepped"));
  EXPECT_EQ(slots_->counts(0).filling, 2u);
  EXPECT_EQ(store_->lease_count(), 2);
  device_->End();
  device_->End();
  EXPECT_TRUE(promotions_->Drain().ok());
  EXPECT_TRUE(Readable(a_));
  EXPECT_TRUE(Readable(b_));
  EXPECT_EQ(store_->lease_count(), 0);
}

TEST_F(PromotionsTest, VictimsAreLeftWhereTheyAreForAStoreThatTakesNone) {
  Make(1, 1, false);
  PutIn(a_);
  ASSERT_TRUE(Start({b_, a_}));
  device_->End();
  promotions_->Settle();
  EXPECT_TRUE(slots_->resident(b_));
  ASSERT_EQ(store_->exchanges().size(), 2u);  // it may want to know who is where
  EXPECT_EQ(store_->exchanges()[1].in, b_);
  EXPECT_EQ(store_->exchanges()[1].out, a_);
  EXPECT_EQ(store_->exchanges()[1].byte_count, 0u);
  EXPECT_EQ(device_->read_count, 0u);
}

// It is told that the victim has gone, without its bytes.
TEST_F(PromotionsTest, VictimThatCannotBeBroughtBackIsNotOffered) {
  Make(1, 1, true);
  PutIn(a_);
  device_->read_status = absl::DataLossError("link");
  ASSERT_TRUE(Start({b_, a_}));
  device_->End();
  promotions_->Settle();
  EXPECT_TRUE(slots_->resident(b_));
  EXPECT_FALSE(slots_->resident(a_));
  ASSERT_EQ(store_->exchanges().size(), 2u);
  EXPECT_EQ(store_->exchanges()[1].in, b_);
  EXPECT_EQ(store_->exchanges()[1].byte_count, 0u);
}

// On the real device, copies late: Drain() and the destructor wait for all of them, and whatever
// was begun has landed.
TEST_F(PromotionsTest, DrainAndDestructionWaitForCopiesUnderWay) {
  for (const bool drain : {true, false}) {
    const auto slots = arena_->MakeSlots({.slot_count = 8}, 8, "lru");
    StagedStore store(arena_->store(), {.late = false, .takes_exchange = true});
    auto device = HostSlots::Create(slots->pools(), {.before_copy = [] { YieldFor(300); }});
    ASSERT_TRUE(device.ok()) << device.status();
    auto promotions = std::make_unique<Promotions>(
        Promotions::Deps{.slots = *slots, .device = **device, .store = store, .clock = clock_}, 8,
        int64_t{60'000'000'000});
    for (uint32_t e = 0; e < 8; ++e) {
      ASSERT_TRUE(
          promotions->Start({Key(e % 4, e), ExpertKey()}, *store.TryAcquire(Key(e % 4, e))));
    }
    if (drain) {
      ASSERT_TRUE(promotions->Drain().ok());
    } else {
      promotions.reset();
    }
    EXPECT_EQ(store.lease_count(), 0);
    EXPECT_EQ(slots->counts(0).resident, 8u);
    EXPECT_EQ(store.exchanges().size(), 8u);
    for (uint32_t e = 0; e < 8; ++e) {
      const SlotLease lease = slots->Acquire(Key(e % 4, e));
      ASSERT_TRUE(lease.valid());
      const auto truth = store.truth(Key(e % 4, e));
      EXPECT_TRUE(std::ranges::equal((*device)->HostView(lease.ref()).first(truth.size()), truth));
    }
  }
}

// Swaps at random, copies ending or failing whenever: the residents are always those that landed,
// and always readable.
TEST_F(PromotionsTest, RandomSwapsKeepEveryResidentReadable) {
  Make(6, 3, true, 4);
  Prng prng(5);
  std::vector<ExpertKey> residents;
  std::vector<Swap> under_way;
  const auto settle = [&](bool lands) {
    device_->End(lands ? absl::OkStatus() : absl::DataLossError("link"));
    promotions_->Settle();
    const Swap swap = under_way.front();
    under_way.erase(under_way.begin());
    if (!lands) return;
    std::erase(residents, swap.out);
    residents.push_back(swap.in);
  };
  for (int step = 0; step < 3000; ++step) {
    if (!under_way.empty() && prng.Below(3) == 0) settle(prng.Below(4) != 0);
    const ExpertKey in =
        Key(static_cast<uint32_t>(prng.Below(4)), static_cast<uint32_t>(prng.Below(8)));
    const auto is_in = [&](const Swap& s) { return s.in == in; };
    if (std::ranges::count(residents, in) > 0 || std::ranges::any_of(under_way, is_in)) continue;
    Swap swap{in, ExpertKey()};
    const auto growing =
        std::ranges::count_if(under_way, [](const Swap& s) { return !s.out.layer.valid(); });
    if (residents.size() + static_cast<size_t>(growing) >= 6) {
      swap.out = residents[prng.Below(residents.size())];
      if (std::ranges::any_of(under_way, [&](const Swap& s) { return s.out == swap.out; }))
        continue;
    }
    if (Start(swap)) under_way.push_back(swap);
    ASSERT_LE(under_way.size(), 4u);
    ASSERT_EQ(store_->lease_count(), static_cast<int64_t>(under_way.size()));
    ASSERT_EQ(slots_->counts(0).resident, residents.size());
    for (const ExpertKey key : residents) ASSERT_TRUE(Readable(key)) << step;
  }
  while (!under_way.empty()) settle(true);
  EXPECT_GT(slots_->stats().swap_count, 300u);
  EXPECT_EQ(store_->exchanges().size(), slots_->stats().swap_count);
  EXPECT_TRUE(
      std::ranges::all_of(store_->exchanges(), [](const auto& e) { return e.right_bytes; }));
}

TEST_F(PromotionsTest, AllocatesNothingAfterCreation) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  Make(2, 2, true);
  PutIn(a_);
  PutIn(b_);
  ExpertKey in[] = {c_, d_}, out[] = {a_, b_};
  const uint64_t before = AllocationCount();
  for (int turn = 0; turn < 50; ++turn) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Start({in[i], out[i]}));
    for (int i = 0; i < 2; ++i) device_->End();
    promotions_->Settle();
    std::swap(in, out);
  }
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
