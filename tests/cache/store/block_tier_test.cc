// RAM beside VRAM and under a budget that is lowered: bytes are exchanged, not duplicated, and a
// lowered budget stays lowered. Then everything at once against a plain model.
#include "cache/store/block_tier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "tests/cache/store/ram_fixture.h"

namespace hearth {
namespace {

uint64_t TrunkBlocks(const StoreFixture& store, uint64_t count) {
  return store.file().layout(LayerId(0)).stride_bytes() * count;
}
std::vector<std::byte> Blob(const StoreFixture& store, ExpertKey key) {
  return ExpectedBlob(store.file().layout(key.layer), key);
}

TEST(BlockTier, BytesThatComeBackFromVramAreNotRead) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 10)});
  ram->SetHeldInVram(Key(0, 0), true);
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  EXPECT_FALSE(ram->Find(Key(0, 0)).valid());
  const BlockId block_of_in = ram->Find(Key(0, 3));
  const uint64_t reads = ram->stats().read_count;
  ram->Exchange(Key(0, 3), Key(0, 0), Blob(store, Key(0, 0)));
  // The same block changes hands: the tier holds as many experts as before.
  EXPECT_EQ(ram->Find(Key(0, 0)), block_of_in);
  EXPECT_FALSE(ram->Find(Key(0, 3)).valid());
  EXPECT_TRUE(ram.tier().resident(Key(0, 0)));
  EXPECT_TRUE(store.Equal(Key(0, 0), ram->bytes(block_of_in)));
  EXPECT_EQ(ram->stats().read_count, reads);
  EXPECT_EQ(ram->stats().exchange_count, 1u);
}

TEST(BlockTier, AnExchangeLeavesLeasedBytesAlone) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 10)});
  ram->SetHeldInVram(Key(2, 0), true);
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  const BlockId leased = ram->Lease(Key(0, 3));
  ram->Exchange(Key(0, 3), Key(2, 0), Blob(store, Key(2, 0)));
  EXPECT_TRUE(store.Equal(Key(0, 3), ram->bytes(leased)));
  EXPECT_TRUE(store.Equal(Key(2, 0), ram->bytes(ram->Find(Key(2, 0)))));
  ram->Release(leased);
}

TEST(BlockTier, WhoWaitsForAnExpertGetsItFromTheExchange) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 4)});
  Asker holder(*ram.blocks), asker(*ram.blocks);
  std::vector<uint64_t> held;
  for (uint32_t e = 0; e < 4; ++e) {
    held.push_back(holder.Ask(Key(0, e)));
    ASSERT_TRUE(holder.Await(held.back()).ok());
  }
  const uint64_t number = asker.Ask(Key(1, 7));
  EXPECT_FALSE(asker.arrived(number));
  ram.script.HoldAll();
  holder.Release(held[2]);
  // Either the exchange or the read, whoever had the block first; no other bytes either way.
  ram->Exchange(Key(0, 2), Key(1, 7), Blob(store, Key(1, 7)));
  ram.script.HoldNone();
  const absl::StatusOr<BlockId> block = asker.Await(number);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(store.Equal(Key(1, 7), ram->bytes(*block)));
}

TEST(BlockTier, WhatVramHoldsMakesRoom) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 10), .options = {.landing_count = 2}});
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  for (uint32_t e = 0; e < 8; ++e) ram->SetHeldInVram(Key(0, e), true);
  EXPECT_FALSE(ram.tier().resident(Key(0, 0)));
  EXPECT_TRUE(ram->Find(Key(0, 0)).valid());  // its bytes are still there: nobody needed the block
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  for (uint32_t e = 8; e < 16; ++e) EXPECT_TRUE(ram.tier().resident(Key(0, e))) << e;
  // However hot, RAM does not keep it a second time.
  Asker asker(*ram.blocks);
  for (int pass = 0; pass < 5; ++pass) {
    ASSERT_TRUE(asker.Get(Key(0, 1)).ok());
    UseInOnePass(*ram.blocks, LayerId(0), {1});
    asker.ReleaseAll();
  }
  EXPECT_FALSE(ram.tier().resident(Key(0, 1)));
  ram->SetHeldInVram(Key(0, 1), false);
  UseInOnePass(*ram.blocks, LayerId(0), {1});
  EXPECT_TRUE(ram.tier().resident(Key(0, 1)));
}

uint64_t ResidentBytes(std::span<std::byte> memory) {
  std::vector<unsigned char> pages(memory.size() / 4096);
  HEARTH_CHECK(::mincore(memory.data(), memory.size(), pages.data()) == 0);
  uint64_t bytes = 0;
  for (const unsigned char page : pages) bytes += (page & 1) != 0 ? 4096 : 0;
  return bytes;
}

TEST(BlockTier, ALoweredBudgetStaysLoweredAndItsMemoryIsGivenBack) {
  const StoreFixture store({.expert_count = 32});
  const uint64_t all = AllBlockBytes(store.file());
  RamFixture ram(store);
  ASSERT_TRUE(ram->Fill(nullptr).ok());
  Asker asker(*ram.blocks);
  EXPECT_GE(ResidentBytes(ram.memory()), all);
  const BlockId leased = ram->Lease(Key(1, 1));
  ram->Lower(all / 4);
  EXPECT_LE(ram->stats().capacity_bytes, all / 4);
  EXPECT_LE(ResidentBytes(ram.memory()), all / 4);
  EXPECT_TRUE(store.Equal(Key(1, 1), ram->bytes(leased)));
  ram->Lower(all);  // no way back
  for (int round = 0; round < 3; ++round) {
    for (const ExpertKey key : store.keys()) {
      const absl::StatusOr<BlockId> block = asker.Get(key);
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_TRUE(store.Equal(key, ram->bytes(*block)));
      asker.ReleaseAll();
    }
    UseInOnePass(*ram.blocks, LayerId(0), {1, 2, 3});
  }
  EXPECT_LE(ram->stats().capacity_bytes, all / 4);
  EXPECT_LE(ResidentBytes(ram.memory()), all / 4);
  ram->Release(leased);
  ram->Lower(0);
  EXPECT_EQ(ram->stats().capacity_bytes, LeastBlockBytes(store.file()));
  ASSERT_EQ(ram->notes().size(), 1u);
  EXPECT_NE(ram->notes()[0].find("least that works"), std::string::npos);
  EXPECT_TRUE(asker.Get(Key(0, 0)).ok());
}

TEST(BlockTier, LeasedBlocksAreGivenBackWhenTheyAreReleased) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 10)});
  Asker asker(*ram.blocks);
  for (uint32_t e = 0; e < 10; ++e) ASSERT_TRUE(asker.Get(Key(0, e)).ok());
  ram->Lower(TrunkBlocks(store, 5));
  EXPECT_EQ(ram->stats().capacity_bytes, TrunkBlocks(store, 10));
  asker.ReleaseAll();
  EXPECT_EQ(ram->stats().capacity_bytes, TrunkBlocks(store, 5));
}

// A reader that keeps the memory is replaced before anything else is read.
TEST(BlockTier, LoweredMemoryIsNotKeptByTheReader) {
  const StoreFixture store({.has_mtp = false});
  ReaderScript second(store.bytes());
  std::atomic<int> reopened{0};
  RamBlocksOptions options;
  options.reopen = [&]() -> absl::StatusOr<std::unique_ptr<Reader>> {
    ++reopened;
    return std::make_unique<ScriptedReader>(second);
  };
  RamFixture ram(store,
                 {.memory_bytes = TrunkBlocks(store, 20), .options = options, .registered = true});
  Asker asker(*ram.blocks);
  ASSERT_TRUE(asker.Get(Key(0, 0)).ok());
  ram.script.HoldAll();
  const uint64_t under_way = asker.Ask(Key(0, 1));
  ram.script.AwaitSubmitted(4);
  ram->Lower(TrunkBlocks(store, 10));
  const uint64_t later = asker.Ask(Key(0, 2));
  EXPECT_EQ(reopened, 0);  // a read of the old one is under way
  ram.script.HoldNone();
  EXPECT_TRUE(asker.Await(under_way).ok());
  EXPECT_TRUE(asker.Await(later).ok());
  EXPECT_EQ(reopened, 1);
  EXPECT_EQ(ram.script.submitted_count(), 4u);
  EXPECT_EQ(second.submitted_count(), 2u);
  ram->Lower(TrunkBlocks(store, 8));  // the new one keeps nothing
  EXPECT_TRUE(asker.Get(Key(0, 3)).ok());
  EXPECT_EQ(reopened, 1);
}

TEST(BlockTier, AReaderThatCannotBeReplacedStays) {
  const StoreFixture store({.has_mtp = false});
  RamBlocksOptions options;
  options.reopen = []() -> absl::StatusOr<std::unique_ptr<Reader>> {
    return absl::ResourceExhaustedError("too many open files");
  };
  RamFixture ram(store,
                 {.memory_bytes = TrunkBlocks(store, 20), .options = options, .registered = true});
  ram->Lower(TrunkBlocks(store, 10));
  Asker asker(*ram.blocks);
  EXPECT_TRUE(asker.Get(Key(0, 0)).ok());
  ASSERT_EQ(ram->notes().size(), 1u);
  EXPECT_NE(ram->notes()[0].find("too many open files"), std::string::npos);
}

// Everything at once from one thread: what arrives is compared with the file, all the time.
class RandomRun {
 public:
  RandomRun(const StoreFixture& store, uint64_t seed, uint64_t memory_bytes)
      : store_(store),
        prng_(seed),
        keys_(store.keys()),
        ram_(store, {.memory_bytes = memory_bytes}),
        asker_(*ram_.blocks) {
    ram_.script.Fail([this](const ReadRequest& request) {
      return failing_ && request.offset_bytes % 5 == 0 ? absl::DataLossError("EIO")
                                                       : absl::OkStatus();
    });
  }
  void Run(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      ASSERT_NO_FATAL_FAILURE(Step(prng_.Below(40))) << step;
      if (step % 200 == 0) CheckHeld();
    }
    asker_.AwaitAll();
    CheckHeld();
    asker_.ReleaseAll();
  }

 private:
  ExpertKey AnyKey() { return keys_[prng_.Below(keys_.size())]; }
  void Step(uint64_t what) {
    if (what < 14) {
      // No more than a class has blocks: else all might wait for each other.
      if (held_.size() < kClassBlocksMin) held_.push_back(asker_.Ask(AnyKey()));
    } else if (what < 26) {
      GiveOneBack();
    } else if (what < 28) {
      ram_->LookAhead(AnyKey());
    } else if (what < 32) {
      const ExpertKey key = AnyKey();
      UseInOnePass(*ram_.blocks, key.layer, {key.expert.value});
    } else if (what < 34) {
      ram_->SetHeldInVram(AnyKey(), prng_.Below(2) == 0);
    } else if (what < 37) {
      const ExpertKey out = AnyKey();
      ram_->Exchange(AnyKey(), out, ExpectedBlob(store_.file().layout(out.layer), out));
    } else if (what == 37) {
      failing_ = !failing_;
    } else if (what == 38) {
      ram_.tier().CheckInvariants();
    } else if (prng_.Below(100) == 0) {
      ram_->Lower(ram_->stats().capacity_bytes * 9 / 10);
    }
  }
  void GiveOneBack() {
    if (held_.empty()) return;
    const size_t i = prng_.Below(held_.size());
    const uint64_t number = held_[i];
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
    const absl::StatusOr<BlockId> block = asker_.Await(number);
    if (!block.ok()) {
      EXPECT_EQ(block.status().code(), absl::StatusCode::kDataLoss) << block.status();
      return;
    }
    EXPECT_TRUE(store_.Equal(ram_->key(*block), ram_->bytes(*block)));
    asker_.Release(number);
  }
  void CheckHeld() {
    for (const uint64_t number : held_) {
      if (!asker_.arrived(number)) continue;
      const absl::StatusOr<BlockId> block = asker_.Await(number);
      if (block.ok()) {
        EXPECT_TRUE(store_.Equal(ram_->key(*block), ram_->bytes(*block)));
      }
    }
  }

  const StoreFixture& store_;
  Prng prng_;
  const std::vector<ExpertKey> keys_;
  std::atomic<bool> failing_{false};
  RamFixture ram_;
  Asker asker_;
  std::vector<uint64_t> held_;
};

TEST(BlockTier, RandomCallsAgreeWithTheFile) {
  const StoreFixture store({.trunk_layers = 3, .expert_count = 12, .hidden = 256, .width = 64});
  const uint64_t least = LeastBlockBytes(store.file()), all = AllBlockBytes(store.file());
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    RandomRun run(store, seed, least + (all - least) * (seed - 1) / 5);
    run.Run(3'000);
  }
}

// Several engines: each asks, looks at the bytes while others evict, and gives back.
TEST(BlockTier, ManyThreadsSeeOnlyRightBytes) {
  const StoreFixture store({.trunk_layers = 2, .expert_count = 12, .hidden = 256, .width = 64});
  RamFixture ram(store, {.memory_bytes = AllBlockBytes(store.file()) / 2});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Prng prng(t);
      Asker asker(*ram.blocks);
      const std::vector<ExpertKey> keys = store.keys();
      for (int i = 0; i < 300; ++i) {
        const ExpertKey key = keys[prng.Below(keys.size())];
        BlockId block = ram->Lease(key);
        const bool hit = block.valid();
        if (!hit) block = *asker.Get(key);
        EXPECT_TRUE(store.Equal(key, ram->bytes(block)));
        if (hit) ram->Release(block);
        asker.ReleaseAll();
        if (t == 0) UseInOnePass(*ram.blocks, key.layer, {key.expert.value});
        if (t == 1) ram->LookAhead(keys[prng.Below(keys.size())]);
        if (t == 2 && i % 8 == 0) {
          ram->Exchange(keys[prng.Below(keys.size())], key,
                        ExpectedBlob(store.file().layout(key.layer), key));
        }
        if (i % 50 == 0) ram->stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hearth
