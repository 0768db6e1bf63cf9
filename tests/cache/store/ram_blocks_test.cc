// The RAM tier reads what it lacks, once, hands each expert out the moment it is there, and keeps
// what the policy says. Faults, VRAM and lowered budgets have tests of their own.
#include "cache/store/ram_blocks.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/cache/store/ram_fixture.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

uint64_t TrunkBlocks(const StoreFixture& store, uint64_t count) {
  return store.file().layout(LayerId(0)).stride_bytes() * count;
}

TEST(RamBlocks, EveryExpertHasItsBytesWhateverTheBudgetAndTheOrder) {
  const StoreFixture store;
  const uint64_t least = LeastBlockBytes(store.file()), all = AllBlockBytes(store.file());
  for (const uint64_t budget : {least, least + (all - least) / 4, all / 2, all}) {
    for (uint32_t parts = 1; parts <= 4; ++parts) {
      RamFixture ram(store, {.memory_bytes = budget, .options = {.blob_requests = parts}});
      Asker asker(*ram.blocks);
      std::vector<ExpertKey> keys = store.keys();
      Prng prng(budget + parts);
      for (int round = 0; round < 2; ++round) {
        for (size_t i = keys.size(); i-- > 1;) std::swap(keys[i], keys[prng.Below(i + 1)]);
        for (const ExpertKey key : keys) {
          const uint64_t number = asker.Ask(key);
          const absl::StatusOr<BlockId> block = asker.Await(number);
          ASSERT_TRUE(block.ok()) << block.status();
          EXPECT_EQ(ram->key(*block), key);
          EXPECT_TRUE(store.Equal(key, ram->bytes(*block)));
          asker.Release(number);
        }
        ram->EndWindow(1);
      }
      const StoreStats stats = ram->stats();
      EXPECT_LE(stats.capacity_bytes, budget);
      if (budget == all) {
        EXPECT_EQ(stats.read_count, keys.size());
      }
    }
  }
}

TEST(RamBlocks, AWholeLayerAskedAtOnceArrivesThroughAFewBlocks) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 4)});
  // As a pool works: each expert is used and given back as it comes.
  std::atomic<uint32_t> arrived{0};
  for (uint32_t e = 0; e < 16; ++e) {
    ram->Fetch(Key(1, e), [&](const absl::StatusOr<BlockId>& block) {
      EXPECT_TRUE(block.ok()) << block.status();
      EXPECT_TRUE(store.Equal(ram->key(*block), ram->bytes(*block)));
      ram->Release(*block);
      ++arrived;
      arrived.notify_one();
    });
  }
  for (uint32_t n; (n = arrived.load()) < 16;) arrived.wait(n);
  EXPECT_EQ(ram->stats().read_count, 16u);
}

TEST(RamBlocks, EightThreadsThatAskForOneColdExpertMakeOneRead) {
  const StoreFixture store;
  RamFixture ram(store, {.options = {.blob_requests = 1}});
  ram.script.HoldAll();
  Asker asker(*ram.blocks);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { asker.Ask(Key(1, 3)); });
  for (std::thread& thread : threads) thread.join();
  ram.script.HoldNone();
  asker.AwaitAll();
  EXPECT_EQ(ram.script.submitted_count(), 1u);
  EXPECT_EQ(ram->stats().read_count, 1u);
  asker.Get(Key(1, 3)).IgnoreError();
  EXPECT_EQ(ram->stats().read_count, 1u);
}

TEST(RamBlocks, EachExpertArrivesWhenItHasLandedNotWhenAllHave) {
  const StoreFixture store;
  RamFixture ram(store);
  const uint64_t slow = store.file().offset_bytes(Key(0, 0));
  ram.script.Hold([slow](const ReadRequest& request) { return request.offset_bytes == slow; });
  Asker asker(*ram.blocks);
  const uint64_t first = asker.Ask(Key(0, 0));
  for (uint32_t e = 1; e < 6; ++e) EXPECT_TRUE(asker.Get(Key(0, e)).ok());
  EXPECT_FALSE(asker.arrived(first));
  EXPECT_FALSE(ram->Find(Key(0, 0)).valid());  // half of it has landed
  ram.script.HoldNone();
  EXPECT_TRUE(asker.Await(first).ok());
}

TEST(RamBlocks, LeasedBlocksKeepTheirBytesWhileOthersComeAndGo) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 6)});
  Asker holder(*ram.blocks), asker(*ram.blocks);
  const BlockId a = *holder.Get(Key(0, 0)), b = *holder.Get(Key(2, 5));
  for (uint32_t round = 0; round < 3; ++round) {
    for (const ExpertKey key : store.keys()) {
      ASSERT_TRUE(asker.Get(key).ok());
      asker.ReleaseAll();
    }
    UseInOnePass(*ram.blocks, LayerId(1), {0, 1, 2});
  }
  EXPECT_TRUE(store.Equal(Key(0, 0), ram->bytes(a)));
  EXPECT_TRUE(store.Equal(Key(2, 5), ram->bytes(b)));
}

TEST(RamBlocks, BlocksHeldElsewhereAreNotGivenAwayUntilTheyAreNotHeld) {
  const StoreFixture store({.has_mtp = false});
  std::atomic<bool> held{true};
  std::atomic<uint32_t> held_block{UINT32_MAX};
  RamFixture ram(
      store, {.memory_bytes = TrunkBlocks(store, 4),
              .held_elsewhere = [&](BlockId block) { return held && block.value == held_block; }});
  Asker asker(*ram.blocks);
  held_block = asker.Get(Key(0, 0))->value;
  asker.ReleaseAll();
  for (const ExpertKey key : store.keys()) {
    ASSERT_TRUE(asker.Get(key).ok());
    asker.ReleaseAll();
  }
  EXPECT_EQ(ram->Find(Key(0, 0)).value, held_block);
  // All others leased: who asks now waits for the one that is held, and gets it without a call.
  for (uint32_t e = 1; e < 4; ++e) ASSERT_TRUE(asker.Get(Key(1, e)).ok());
  const uint64_t number = asker.Ask(Key(2, 9));
  EXPECT_FALSE(asker.arrived(number));
  held = false;
  EXPECT_EQ(asker.Await(number)->value, held_block);
}

TEST(RamBlocks, TheHottestStayWhenThePassIsOver) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 12),
                         .options = {.landing_count = 4, .policy = "two-scale"}});
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  EXPECT_EQ(ram->stats().resident_count, 8u);
  Asker asker(*ram.blocks);
  // Four experts are used in every pass, the others once.
  for (uint32_t pass = 0; pass < 12; ++pass) {
    for (const uint32_t e : {3u, 5u, 7u, 4 + pass}) ASSERT_TRUE(asker.Get(Key(2, e)).ok());
    UseInOnePass(*ram.blocks, LayerId(2), {3, 5, 7, 4 + pass});
    asker.ReleaseAll();
  }
  const uint64_t reads = ram->stats().read_count;
  for (const uint32_t e : {3u, 5u, 7u}) {
    ASSERT_TRUE(ram->Find(Key(2, e)).valid());
    EXPECT_TRUE(ram.tier().resident(Key(2, e)));
  }
  EXPECT_EQ(ram->stats().read_count, reads);
}

TEST(RamBlocks, WhatIsNotKeptIsFoundUntilItsBlockIsNeeded) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 6), .options = {.landing_count = 5}});
  Asker asker(*ram.blocks);
  ASSERT_TRUE(asker.Get(Key(0, 0)).ok());
  asker.ReleaseAll();
  ram->EndWindow(1);
  ram->EndWindow(1);
  EXPECT_TRUE(asker.Get(Key(0, 0)).ok());
  EXPECT_EQ(ram->stats().read_count, 1u);
}

TEST(RamBlocks, LookAheadReadsOnlyWhileNothingElseIsToBeRead) {
  const StoreFixture store;
  RamFixture ram(store, {.options = {.blob_requests = 1}});
  ram.script.HoldAll();
  Asker asker(*ram.blocks);
  const uint64_t demand = asker.Ask(Key(0, 1));
  ram.script.AwaitSubmitted(1);
  for (uint32_t e = 0; e < 4; ++e) ram->LookAhead(Key(1, e));
  asker.Ask(Key(0, 2));
  ram.script.AwaitSubmitted(2);
  EXPECT_EQ(ram.script.submitted()[1].offset_bytes, store.file().offset_bytes(Key(0, 2)));
  ram.script.HoldNone();
  asker.Await(demand).IgnoreError();
  ram.script.AwaitSubmitted(6);
  while (ram->stats().read_count < 6) std::this_thread::yield();
  EXPECT_EQ(ram->stats().lookahead_read_count, 4u);
  EXPECT_EQ(ram->stats().lookahead_used_count, 0u);
  ASSERT_TRUE(asker.Get(Key(1, 2)).ok());
  ASSERT_TRUE(asker.Get(Key(1, 2)).ok());
  EXPECT_EQ(ram->stats().lookahead_used_count, 1u);
  EXPECT_EQ(ram->stats().read_count, 6u);
}

TEST(RamBlocks, DemandJoinsAReadAhead) {
  const StoreFixture store;
  RamFixture ram(store, {.options = {.blob_requests = 1}});
  ram.script.HoldAll();
  ram->LookAhead(Key(0, 7));
  ram.script.AwaitSubmitted(1);
  Asker asker(*ram.blocks);
  const uint64_t number = asker.Ask(Key(0, 7));
  ram.script.HoldNone();
  EXPECT_TRUE(asker.Await(number).ok());
  EXPECT_EQ(ram.script.submitted_count(), 1u);
  EXPECT_EQ(ram->stats().lookahead_used_count, 1u);
}

TEST(RamBlocks, FillReadsTheHottestAndTellsHowFarItIs) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 12), .options = {.landing_count = 2}});
  std::vector<float> sightings(16, 0.f);
  for (uint32_t e = 6; e < 16; ++e) sightings[e] = static_cast<float>(e);
  ram->Seed(LayerId(1), sightings);
  uint64_t last_done = 0, last_total = 0;
  ASSERT_TRUE(ram->Fill([&](uint64_t done, uint64_t total) {
                   EXPECT_GE(done, last_done);
                   last_done = done;
                   last_total = total;
                 })
                  .ok());
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_total, TrunkBlocks(store, 10));
  for (uint32_t e = 6; e < 16; ++e) EXPECT_TRUE(ram->Find(Key(1, e)).valid()) << e;
  EXPECT_GT(ram->Heat(Key(1, 15)), ram->Heat(Key(1, 6)));
}

TEST(RamBlocks, AFillingThatIsStoppedEndsWithWhatItHas) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store);
  EXPECT_TRUE(absl::IsCancelled(ram->Fill([&](uint64_t done, uint64_t) {
    if (done > 0) ram->StopFilling();
  })));
  EXPECT_LT(ram->stats().resident_count, store.keys().size());
  EXPECT_TRUE(absl::IsCancelled(ram->Fill(nullptr)));
}

TEST(RamBlocks, ResidentHitsAndPassesAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 12)});
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  const std::vector<ExpertSighting> sightings = {{ExpertId(0), 1}, {ExpertId(1), 1}};
  const auto pass = [&] {
    ram->Observe({LayerId(0), sightings, TrafficKind::kWindow});
    for (uint32_t e = 0; e < 2; ++e) {
      const BlockId block = ram->Lease(Key(0, e));
      ASSERT_TRUE(block.valid());
      ram->Release(block);
      ram->Fetch(Key(0, e), [&](const absl::StatusOr<BlockId>& b) { ram->Release(*b); });
    }
    ram->EndWindow(1);
  };
  pass();
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 20; ++i) pass();
  EXPECT_EQ(AllocationCount(), before);
}

TEST(RamBlocks, UselessOptionsAreRefused) {
  const StoreFixture store;
  const AnonymousMapping memory = *AnonymousMapping::Create(AllBlockBytes(store.file()));
  TestClock clock;
  ReaderScript script(store.bytes());
  const auto create = [&](std::span<std::byte> bytes, const RamBlocksOptions& options) {
    return RamBlocks::Create(store.file(), bytes, std::make_unique<ScriptedReader>(script), clock,
                             options, nullptr)
        .status()
        .code();
  };
  EXPECT_EQ(create(memory.data(), {}), absl::StatusCode::kOk);
  EXPECT_EQ(create(memory.data().subspan(64), {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(memory.data().first(100), {}), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(create(memory.data(), {.blob_requests = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(memory.data(), {.blob_requests = 5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(memory.data(), {.blobs_in_flight_max = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(memory.data(), {.read_timeout_ns = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(memory.data(), {.policy = "lur"}), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hearth
